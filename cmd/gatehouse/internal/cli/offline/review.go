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
	"slices"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/internal/jsonout"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// NewReviewCommand returns the command "gatehouse review".
func NewReviewCommand(s cli.Streams) *cobra.Command {
	var f configFlag
	var names []string
	for _, e := range webhooks.Endpoints() {
		names = append(names, e.Name)
	}
	cmd := &cobra.Command{
		Use:   "review authenticate|authorize|mutate|validate --config DIR [FILE...]",
		Short: "Answer reviews of the API server from files",
		Long: `Review answers AdmissionReviews, TokenReviews and SubjectAccessReviews (YAML or JSON)
from files or standard input as the server would, and prints one response a line, in order. Use it
to find out how a call of the API server that you have captured is answered.

If the server would answer with an HTTP error, review prints a Status with the code,
the file, the number of the review and the reason.

Exit codes: 0 all are allowed, 1 any is denied, 2 any cannot be decided.`,
		Example: `  # would the recorded requests still be admitted?
  gatehouse review validate --config ./config recorded.ndjson > answers.ndjson

  # what does the injector do to this pod?
  gatehouse review mutate --config ./config review.yaml | jq -r .response.patch | base64 -d`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("the endpoint is missing: authenticate, authorize, mutate or validate (hint: gatehouse review mutate --config DIR FILE)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, snapshot, err := f.load()
			if err != nil {
				return err
			}
			at := slices.Index(names, args[0])
			if at < 0 {
				return fmt.Errorf("endpoint %q: must be authenticate, authorize, mutate or validate", args[0])
			}
			r := reviewer{
				endpoint: webhooks.Endpoints()[at], snapshot: snapshot, documents: newDocumentReviewer(c),
				out: bufio.NewWriter(s.Out), remarks: s.Err,
			}
			return r.run(cmd.Context(), s.In, args[1:])
		},
	}
	f.add(cmd)
	return cmd
}

// answer returns the text of the answer to a review, or the HTTP error that the server would answer.
func (r *reviewer) answer(ctx context.Context, body []byte) ([]byte, verdict, *httpError) {
	switch {
	case r.endpoint.Token != nil:
		text, v := r.answerToken(ctx, body)
		return text, v, nil
	case r.endpoint.Access != nil:
		return r.answerAccess(ctx, body)
	}
	request, err := review.DecodeAdmission(body)
	if err != nil {
		return nil, unknown, &httpError{http.StatusBadRequest, err.Error()}
	}
	var response admission.Response
	if r.endpoint.CustomResources && crdadmission.Concerns(&request) {
		response = r.documents.Review(ctx, request, true)
	} else {
		response = r.endpoint.Admission(ctx, r.snapshot, webhooks.Input{Request: request, Checked: true})
	}
	if !response.Allowed && response.Result != nil && response.Result.Code >= http.StatusInternalServerError {
		return nil, unknown, &httpError{http.StatusInternalServerError, response.Result.Message}
	}
	text, err := review.AppendAdmission(nil, request.UID, &response)
	switch {
	case err != nil:
		return nil, unknown, &httpError{http.StatusInternalServerError, err.Error()}
	case response.Allowed:
		return text, allowed, nil
	default:
		return text, denied, nil
	}
}

// answerToken answers a token review. The server's HTTP status is 200 for every one.
func (r *reviewer) answerToken(ctx context.Context, body []byte) ([]byte, verdict) {
	request, apiVersion, err := review.DecodeToken(body)
	if err != nil {
		return review.AppendToken(nil, apiVersion, &authenticationv1.TokenReviewStatus{Error: err.Error()}), unknown
	}
	status := r.endpoint.Token(ctx, r.snapshot, request, nil).Status
	v := denied
	switch {
	case status.Error != "":
		v = unknown
	case status.Authenticated:
		v = allowed
	}
	return review.AppendToken(nil, apiVersion, &status), v
}

// answerAccess answers an access review. No opinion counts as allowed, because nothing is denied.
func (r *reviewer) answerAccess(ctx context.Context, body []byte) ([]byte, verdict, *httpError) {
	spec, apiVersion, err := review.DecodeAccess(body)
	if err != nil {
		return nil, unknown, &httpError{http.StatusBadRequest, err.Error()}
	}
	status := r.endpoint.Access(ctx, r.snapshot, &spec).Status()
	v := allowed
	switch {
	case status.EvaluationError != "":
		return nil, unknown, &httpError{http.StatusInternalServerError, status.EvaluationError}
	case status.Denied:
		v = denied
	}
	return review.AppendAccess(nil, apiVersion, &status), v, nil
}

// verdict is one of the three outcomes, the worst last.
type verdict int

const (
	allowed verdict = iota
	denied
	unknown
)

// httpError is an HTTP error that the server would answer.
type httpError struct {
	code    int32
	message string
}

// reviewer answers a stream of reviews.
type reviewer struct {
	endpoint  webhooks.Endpoint
	snapshot  *webhooks.Snapshot
	documents *crdadmission.Reviewer
	out       *bufio.Writer
	remarks   io.Writer
	counts    [unknown + 1]int
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
	_, _ = fmt.Fprintf(r.remarks, "%s: %d allowed, %d denied, %d could not be decided\n",
		diagnostic.Count(total, "review"), r.counts[allowed], r.counts[denied], r.counts[unknown])
	switch {
	case r.counts[unknown] > 0:
		return cli.Exit(cli.ExitUnknown)
	case r.counts[denied] > 0:
		return cli.Exit(cli.ExitNo)
	default:
		return nil
	}
}

func (r *reviewer) file(ctx context.Context, stdin io.Reader, name string) error {
	in := stdin
	if name == "-" {
		name = cli.StdinName
	} else {
		file, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return fmt.Errorf("%s: cannot be read: %w", cli.OneLine(name), cli.Cause(err))
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
		return fmt.Errorf("%s: %w", cli.OneLine(name), err)
	}
	return nil
}

// one answers one review, which messages call where.
func (r *reviewer) one(ctx context.Context, text []byte, where string) error {
	answer, v, failure := r.answer(ctx, text)
	r.counts[v]++
	if failure != nil {
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Message: where + ": " + failure.message, Code: failure.code,
		}
		var err error
		if answer, err = json.Marshal(status); err != nil {
			return err
		}
	}
	if _, err := r.out.Write(jsonout.Escape(answer)); err != nil {
		return err
	}
	return r.out.WriteByte('\n')
}

// eachReview calls f with the JSON text of each review in a stream of JSON values or YAML documents.
func eachReview(in io.Reader, f func([]byte) error) error {
	const head = 1 << 10
	buffered := bufio.NewReaderSize(in, 1<<20)
	if begin, _ := buffered.Peek(head); bytes.HasPrefix(bytes.TrimSpace(begin), []byte("{")) {
		return eachJSON(buffered, f)
	}
	return eachYAML(buffered, f)
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

func eachYAML(in *bufio.Reader, f func([]byte) error) error {
	documents := utilyaml.NewYAMLReader(in)
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		var text []byte
		if err = manifest.NewExpansion(len(document)).Take(document); err == nil {
			text, err = yaml.YAMLToJSONStrict(document)
		}
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
