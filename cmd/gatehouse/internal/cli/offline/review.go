package offline

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/active"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// NewReviewCommand returns the command "gatehouse review".
func NewReviewCommand(s cli.Streams) *cobra.Command {
	var dir string
	names := make([]string, 0, len(webhooks.Endpoints()))
	for _, e := range webhooks.Endpoints() {
		names = append(names, e.Name)
	}
	cmd := &cobra.Command{
		Use:   "review mutate|validate|authenticate --config DIR [FILE...]",
		Short: "Answer recorded reviews without a server",
		Long: `Review reads review objects (YAML, JSON, or JSON one a line) from files, or from
standard input for - or nothing, and writes one answer a line, in order: what the
server would have answered, from the same functions. A review that the server
would have answered with an HTTP error gets a Status line with that code and,
because nobody but you reads it, its file and number and the reason.

Exit code: 0 if all were allowed, 1 if any was refused, 2 if any could not be
decided.`,
		Example: `  # would the recorded requests still be admitted?
  gatehouse review validate --config ./config recorded.ndjson > answers.ndjson

  # what does the injector do to this pod?
  gatehouse review mutate --config ./config review.yaml | jq -r .response.patch | base64 -d`,
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return names, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, found := config.Inspect(dir)
			snapshot, found := active.Compile(c, found)
			if err := found.Err(); err != nil {
				return active.InvalidError(dir, err)
			}
			answer, err := answerer(args[0], c, snapshot)
			if err != nil {
				return err
			}
			r := reviewer{answer: answer, hint: notReviews(args[0]), out: bufio.NewWriter(s.Out), progress: s.Err, terminal: cli.IsTerminal(s.Err), last: time.Now()}
			return r.run(cmd.Context(), s.In, args[1:])
		},
	}
	cmd.Flags().StringVar(&dir, "config", "", "directory of documents (required)")
	_ = cmd.MarkFlagRequired("config") // the flag exists
	_ = cmd.MarkFlagDirname("config")
	return cmd
}

// notReviews is the hint about an object of another kind than reviews are, for an
// endpoint.
func notReviews(endpoint string) string {
	switch endpoint {
	case "mutate":
		return " (hint: 'gatehouse inject' does to manifests what this endpoint would do)"
	case "validate":
		return " (hint: 'gatehouse check' tells of manifests whether they would be admitted)"
	default:
		return ""
	}
}

// isReview reports whether a text is meant to be a review, as far as that can be
// read. What cannot be read may be one.
func isReview(text []byte) bool {
	value, err := rawjson.Parse(text)
	kind := value.Get("kind")
	return err != nil || kind.Kind() != rawjson.String || strings.HasSuffix(kind.Text(), "Review")
}

// answerer is the pure function behind an endpoint: from the text of a review to
// the text of its answer, or to the error that the server would have logged.
func answerer(name string, c *config.Config, s *webhooks.Snapshot) (func(context.Context, []byte) ([]byte, verdict, error), error) {
	admit := func(f review.AdmissionFunc) func(context.Context, []byte) ([]byte, verdict, error) {
		return func(ctx context.Context, body []byte) ([]byte, verdict, error) {
			request, err := review.DecodeAdmission(body)
			if err != nil {
				return nil, unknown, &statusError{http.StatusBadRequest, err}
			}
			response := f(ctx, request)
			v := denied
			switch {
			case response.Allowed:
				v = allowed
			case response.Result != nil && response.Result.Code >= http.StatusInternalServerError:
				return nil, unknown, &statusError{http.StatusInternalServerError, errors.New(response.Result.Message)}
			}
			text, err := review.AppendAdmission(nil, request.UID, &response)
			if err != nil {
				return nil, unknown, &statusError{http.StatusInternalServerError, err}
			}
			return text, v, nil
		}
	}
	switch name {
	case "mutate":
		return admit(s.Sidecar.Review), nil
	case "validate":
		own := offlineDocuments(c)
		return admit(func(ctx context.Context, r admission.Request) admission.Response {
			if crdadmission.Concerns(&r) {
				return own.Review(ctx, r)
			}
			return s.Policy.Review(ctx, r)
		}), nil
	case "authenticate":
		return func(ctx context.Context, body []byte) ([]byte, verdict, error) {
			request, apiVersion, err := review.DecodeToken(body)
			if err != nil {
				// The server answers 200 whatever comes.
				status := authenticationv1.TokenReviewStatus{Error: err.Error()}
				return review.AppendToken(nil, apiVersion, &status), unknown, nil //nolint:nilerr // it is in the answer
			}
			response := s.Authn.Review(ctx, request)
			v := denied
			switch {
			case response.Status.Error != "":
				v = unknown
			case response.Status.Authenticated:
				v = allowed
			}
			return review.AppendToken(nil, apiVersion, &response.Status), v, nil
		}, nil
	default:
		return nil, fmt.Errorf("endpoint %q: must be mutate, validate or authenticate", name)
	}
}

// verdict is one of the three outcomes. They are ordered by how bad they are.
type verdict int

const (
	allowed verdict = iota
	denied
	unknown
)

// statusError is an answer that the server would have given as an HTTP error.
type statusError struct {
	code int32
	err  error
}

func (e *statusError) Error() string { return e.err.Error() }

// reviewer answers a stream of reviews.
type reviewer struct {
	answer   func(context.Context, []byte) ([]byte, verdict, error)
	out      *bufio.Writer
	progress io.Writer
	terminal bool
	last     time.Time
	counts   [unknown + 1]int
	// hint is for somebody who has written something else than reviews.
	hint string
}

func (r *reviewer) run(ctx context.Context, stdin io.Reader, files []string) error {
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		if err := r.file(ctx, stdin, name); err != nil {
			_ = r.out.Flush() // the first error is the one to report
			return err
		}
	}
	if err := r.out.Flush(); err != nil {
		return err
	}
	total := r.counts[allowed] + r.counts[denied] + r.counts[unknown]
	if total == 0 {
		return errors.New("no review was given (hint: name a file, or write reviews to standard input)")
	}
	_, _ = fmt.Fprintf(r.progress, "%s: %d allowed, %d denied, %d could not be decided\n",
		diagnostic.Count(total, "review"), r.counts[allowed], r.counts[denied], r.counts[unknown])
	switch {
	case r.counts[unknown] > 0:
		return &cli.ExitError{Code: cli.ExitUnknown}
	case r.counts[denied] > 0:
		return &cli.ExitError{Code: cli.ExitNo}
	default:
		return nil
	}
}

func (r *reviewer) file(ctx context.Context, stdin io.Reader, name string) error {
	in := stdin
	if name == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // it was only read
		in = file
	}
	n := 0
	err := eachReview(in, func(text []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n++
		return r.one(ctx, text, fmt.Sprintf("%s, review %d", name, n))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// one answers one review, which messages call where.
func (r *reviewer) one(ctx context.Context, text []byte, where string) error {
	answer, v, err := r.answer(ctx, text)
	r.counts[v]++
	if err != nil {
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Message: where + ": " + err.Error(),
		}
		if !isReview(text) {
			status.Message += r.hint
		}
		if code, ok := errors.AsType[*statusError](err); ok {
			status.Code = code.code
		}
		if answer, err = json.Marshal(status); err != nil {
			return err
		}
	}
	if r.terminal && time.Since(r.last) > time.Second {
		r.last = time.Now()
		_, _ = fmt.Fprintf(r.progress, "%s…\n", diagnostic.Count(r.counts[allowed]+r.counts[denied]+r.counts[unknown], "review"))
	}
	if _, err := r.out.Write(answer); err != nil {
		return err
	}
	return r.out.WriteByte('\n')
}

// eachReview calls f with the JSON text of each review in a stream: JSON values
// one a line, where a broken line costs only itself; JSON values written in any
// other way; or YAML documents.
func eachReview(in io.Reader, f func([]byte) error) error {
	buffered := bufio.NewReaderSize(in, 1<<20)
	first, err := firstLine(buffered)
	if err != nil {
		return err
	}
	trimmed := bytes.TrimSpace(first)
	rest := io.MultiReader(bytes.NewReader(first), buffered)
	switch {
	case len(trimmed) == 0:
		return nil
	case trimmed[0] != '{':
		return eachYAML(rest, f)
	}
	if isJSON(trimmed) {
		return eachLine(first, buffered, f)
	}
	// A broken first line must not make one text of a whole recording.
	second, err := firstLine(buffered)
	if err != nil {
		return err
	}
	if isJSON(bytes.TrimSpace(second)) {
		return eachLine(first, bufio.NewReader(io.MultiReader(bytes.NewReader(second), buffered)), f)
	}
	return eachJSON(io.MultiReader(bytes.NewReader(first), bytes.NewReader(second), buffered), f)
}

// isJSON reports whether a line is one whole object.
func isJSON(line []byte) bool {
	_, err := rawjson.Parse(line)
	return err == nil && len(line) > 0 && line[0] == '{'
}

// firstLine reads up to the end of the first line that is not blank.
func firstLine(in *bufio.Reader) ([]byte, error) {
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return line, nil
		}
		if err != nil || len(bytes.TrimSpace(line)) > 0 {
			return line, err
		}
	}
}

func eachLine(line []byte, in *bufio.Reader, f func([]byte) error) error {
	for {
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
			if err := f(trimmed); err != nil {
				return err
			}
		}
		next, err := in.ReadBytes('\n')
		if len(next) == 0 && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		line = next
	}
}

func eachJSON(in io.Reader, f func([]byte) error) error {
	decoder := json.NewDecoder(in)
	for {
		var text json.RawMessage
		err := decoder.Decode(&text)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("invalid JSON behind byte %d: %w", decoder.InputOffset(), err)
		}
		if err := f(text); err != nil {
			return err
		}
	}
}

func eachYAML(in io.Reader, f func([]byte) error) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		text, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		if string(text) == "null" {
			continue // nothing but comments
		}
		if err := f(text); err != nil {
			return err
		}
	}
}
