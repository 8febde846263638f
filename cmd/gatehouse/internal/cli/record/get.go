package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/replicas"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// getFlags are what the command line of record get says.
type getFlags struct {
	cli.ClusterFlags
	namespace, selector, dir, since string
	opsPort                         int

	// after is the time of --since.
	after  time.Time
	labels labels.Selector
}

func newGetCommand(s cli.Streams) *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Fetch the recordings of all replicas into a directory",
		Long: `Get copies what all replicas in a cluster have recorded into a directory, for
'gatehouse record show' and 'gatehouse replay'. Run it again with the same directory
to fetch what is new. It removes nothing. If a replica cannot be read, get names it
and fetches the rest.

The servers must run with --record. You need the rights to list pods and to create
pods/portforward in their namespace. Get connects as kubectl port-forward does, and
opens no port on this machine.

Exit codes: 0 fetched, 1 the replicas have recorded nothing, 2 wrong usage, no
replica was found, or not everything could be fetched.`,
		Example: `  # fetch everything from the cluster of the current context
  gatehouse record get

  # the segments of the last day, into a directory of your choice
  gatehouse record get --context prod --since 24h -d prod

  # then try a configuration
  gatehouse replay --config ./candidate prod`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(time.Now()); err != nil {
				return err
			}
			return f.run(cmd.Context(), s)
		},
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", replicas.Namespace, "namespace of the servers")
	flags.StringVarP(&f.selector, "selector", "l", replicas.Selector, "labels of the pods of the servers")
	flags.IntVar(&f.opsPort, "ops-port", 0, "port of --ops-listen in the pods (default the container port named ops, or 8080)")
	flags.StringVarP(&f.dir, "output-dir", "d", "gatehouse-recording", "directory to write to, which is created if necessary")
	flags.StringVar(&f.since, "since", "", "fetch only files with reviews since this time, such as 2026-11-20T12:00:00Z, or 24h or 7d before now")
	return cmd
}

// check returns everything that is wrong with the flags.
func (f *getFlags) check(now time.Time) error {
	problems := cli.Problems{f.Check()}
	problems.Add(f.dir == "", "--output-dir: must not be empty")
	problems.Add(f.opsPort < 0 || f.opsPort > math.MaxUint16, "--ops-port %d: must be from 1 to 65535", f.opsPort)
	var err error
	f.labels, err = labels.Parse(f.selector)
	problems.Add(err != nil || f.selector == "", "--selector %q: must be a label selector such as app.kubernetes.io/name=gatehouse", f.selector)
	if f.since != "" {
		f.after, err = cli.ParseTime(f.since, now)
		problems.Add(err != nil, "--since %q: %w", f.since, err)
	}
	return problems.Err()
}

// attempts is how often get tries again when nothing arrives. Each attempt goes on where the last one ended.
const attempts = 3

// run fetches, and prints what was fetched.
func (f *getFlags) run(ctx context.Context, s cli.Streams) error {
	access, err := f.Connect("--in-cluster in a pod")
	if err != nil {
		return err
	}
	access.UserAgent = "gatehouse-record/" + build.Version()
	cluster, err := replicas.NewCluster(access)
	if err != nil {
		return err
	}
	cluster.Places, cluster.OpsPort = []replicas.Place{{Namespace: f.namespace, Labels: f.labels}}, f.opsPort
	mirror := replicas.NewMirror(cluster, f.dir, time.Now)
	mirror.MaxBytes, mirror.Since = 0, f.after
	var state replicas.MirrorState
	for failed := 0; failed < attempts; {
		before := state.Bytes
		mirror.Sync(ctx)
		if state = mirror.State(); len(state.Problems) == 0 {
			break
		}
		if state.Bytes == before {
			failed++
		}
		if !sleep.Context(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
	problems := slices.Concat(state.Problems, state.Off)
	slices.SortFunc(problems, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	if state.Replicas == 0 && len(problems) == 0 {
		return fmt.Errorf("no running pod in namespace %q has the labels %s (hint: --namespace and --selector name the servers)", f.namespace, f.labels)
	}
	if state.Segments > 0 {
		const mib = 1 << 20
		if _, err := fmt.Fprintf(s.Out, "%s: %s of %s, %.1f MiB\n", cli.OneLine(f.dir), diagnostic.Count(state.Segments, "segment"), diagnostic.Count(state.Recording, "replica"), float64(state.Bytes)/mib); err != nil {
			return err
		}
	}
	switch {
	case len(problems) > 0:
		texts := make([]string, len(problems))
		for i, problem := range problems {
			texts[i] = cli.OneLine(problem.Error())
		}
		return &cli.ExitError{Code: cli.ExitUnknown, Err: fmt.Errorf("not everything was fetched:\n  %s%s", strings.Join(texts, "\n  "), f.hint(problems))}
	case state.Segments == 0:
		return &cli.ExitError{Code: cli.ExitNo, Err: errors.New("no reviews were recorded in that time (hint: serve writes within 2 seconds; record get without --since fetches everything)")}
	default:
		return nil
	}
}

// hint returns what to do about the problems. The error of a connection that the API server refuses is
// only text, because SPDY has no other.
func (f *getFlags) hint(problems []error) string {
	if !slices.ContainsFunc(problems, func(err error) bool {
		return strings.Contains(err.Error(), ` cannot create resource "pods/portforward" `)
	}) {
		return ""
	}
	return "\n(hint: " + apierr.BindHint(apierr.RoleConsole, f.namespace, "create", "pods/portforward") + ")"
}
