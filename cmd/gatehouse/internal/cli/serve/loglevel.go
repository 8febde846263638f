package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
)

// logLevelFlags are what the command line of log-level says.
type logLevelFlags struct{ address, output string }

// NewLogLevelCommand returns the command "gatehouse log-level".
func NewLogLevelCommand(s cli.Streams) *cobra.Command {
	var f logLevelFlags
	cmd := &cobra.Command{
		Use:   "log-level [LEVEL]",
		Short: "Show or change the log level of a running server",
		Long: `Log-level shows the log level of a running server, or changes it until the server
restarts: debug (every review), info, warn or error. Use it to see more while you
look for a problem. Each replica has its own level.

The server answers only callers on the same host. In a cluster, run the command in
the pod.

Exit codes: 0 shown or changed, 2 wrong usage, or the server does not answer.`,
		Example: `  # show the level of one replica
  kubectl -n gatehouse-system exec deploy/gatehouse -- gatehouse log-level

  # log every review, and return to the level with which serve was started
  kubectl -n gatehouse-system exec gatehouse-5f7d9c-x2x7k -- gatehouse log-level debug
  kubectl -n gatehouse-system exec gatehouse-5f7d9c-x2x7k -- gatehouse log-level info`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("too many arguments: log-level takes one level (hint: gatehouse log-level debug)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := f.change(args)
			if err != nil {
				return err
			}
			state, err := f.ask(cmd.Context(), change)
			if err != nil {
				return err
			}
			return f.print(s.Out, state)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.address, "ops-address", "127.0.0.1:8080", "address of the server for health and metrics, on this host")
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	return cmd
}

// change is the body to send, "" to change nothing.
func (f *logLevelFlags) change(args []string) (string, error) {
	var problems cli.Problems
	host, port, err := net.SplitHostPort(f.address)
	problems.Add(err != nil || host == "" || port == "", "--ops-address %.100q: must be HOST:PORT (hint: 127.0.0.1:8080)", f.address)
	if len(args) == 0 {
		return "", problems.Err()
	}
	if !slices.Contains(debug.Levels(), strings.ToLower(args[0])) {
		// The message does not repeat it: it may be a secret in the wrong place.
		problems = append(problems, errors.New("the level must be "+debug.DescribeLevels(args[0])))
	}
	return args[0], problems.Err()
}

// ask asks the server, by no proxy.
func (f *logLevelFlags) ask(ctx context.Context, change string) (*debug.State, error) {
	const timeout = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	method := http.MethodGet
	if change != "" {
		method = http.MethodPut
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+f.address+debug.LevelPath, strings.NewReader(change))
	if err != nil {
		return nil, fmt.Errorf("--ops-address %.100q: must be HOST:PORT (hint: 127.0.0.1:8080)", f.address)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("no server answers at %s: %w (hint: set --ops-address to the --ops-listen of serve, on the same host)", f.address, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	const most = 4 << 10
	text, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return nil, fmt.Errorf("%s: the answer is incomplete: %w", f.address, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d: %s", f.address, response.StatusCode, cli.OneLine(strings.TrimSpace(string(text))))
	}
	var state debug.State
	if err := json.Unmarshal(text, &state); err != nil || state.Level == "" {
		return nil, fmt.Errorf("%s is not a Gatehouse server (hint: set --ops-address to the --ops-listen of serve)", f.address)
	}
	return &state, nil
}

func (f *logLevelFlags) print(to io.Writer, state *debug.State) error {
	if f.output == "json" {
		return cli.WriteJSONLine(to, state)
	}
	_, err := fmt.Fprintln(to, cli.OneLine(state.Level))
	return err
}
