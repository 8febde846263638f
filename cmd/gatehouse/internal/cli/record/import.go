package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/auditlog"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// importFlags are what the command line of record import says.
type importFlags struct {
	config, keyFile, file, output string
	force                         bool

	now func() time.Time
}

func newImportCommand(s cli.Streams) *cobra.Command {
	f := importFlags{now: time.Now}
	cmd := &cobra.Command{
		Use:   "import AUDIT-LOG…",
		Short: "Create a recording from audit logs of the API server",
		Long: `Import creates a recording from audit logs of API servers (audit.k8s.io/v1): one event
a line, plain or compressed with gzip. "-" is standard input. It needs events of stage
ResponseComplete and of level Request, or better RequestResponse, for create, update,
patch and delete. Secret values are redacted as in recordings of serve, and requests for
tokens are left out.

An audit log is not what webhooks get, so a replay cannot decide everything:

  - Nobody has decided: compare two configurations with 'gatehouse replay --against'.
  - Of level Request, objects lack defaults and what admission has changed. Of level
    RequestResponse, they are as stored, with all that admission has changed.
  - Patches need level RequestResponse. The object before an update or a deletion is
    known if an earlier event of the log holds it.
  - Namespace objects, params and answers of the authorizer are not in audit logs.

Kinds come from the objects, or from their resource. With --config, import also knows
the CustomResourceDefinitions in that directory.

Exit codes: 0 imported, 1 no event makes a review, 2 bad usage, or a log cannot be read
to its end: what was read before is imported.`,
		Example: `  gatehouse record import /var/log/kubernetes/audit.log -f audit.gatehouse.zst

  # all rotated logs of a control plane node
  ssh node-1 'cat /var/log/kubernetes/audit*.log' | gatehouse record import - -f audit.gatehouse.zst

  # then compare two configurations
  gatehouse replay --config ./candidate --against ./current audit.gatehouse.zst`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("an audit log is missing (hint: gatehouse record import FILE, or - for standard input)")
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.output != "text" && f.output != "json" {
				return cli.OutputError(f.output, "text", "json")
			}
			f.file = cmp.Or(f.file, "gatehouse-audit-"+f.now().UTC().Format(fileTime)+record.SegmentSuffix)
			if err := checkOutput(f.file, f.force); err != nil {
				return err
			}
			return f.run(cmd.Context(), s, args)
		},
	}
	flags := cmd.Flags()
	cli.AddConfigFlag(cmd, &f.config, "directory with CustomResourceDefinitions")
	flags.StringVarP(&f.file, "output-file", "f", "", "file to write (default gatehouse-audit-TIME"+record.SegmentSuffix+")")
	flags.BoolVar(&f.force, "force", false, "replace the file if it exists")
	flags.StringVar(&f.keyFile, "record-key-file", "", "file with the key of redacted values, as for serve; the same key makes values of both recordings comparable (default: a random key)")
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	_ = cmd.MarkFlagFilename("output-file", "zst") // the flags exist
	_ = cmd.MarkFlagFilename("record-key-file")
	return cmd
}

// importResult is what record import has done, for -o json.
type importResult struct {
	// File is "" if there were no reviews.
	File    string     `json:"file,omitempty"`
	Events  int64      `json:"events"`
	Reviews int64      `json:"reviews"`
	Begin   *time.Time `json:"begin,omitempty"`
	End     *time.Time `json:"end,omitempty"`
	// Skipped are numbers of events by reason.
	Skipped map[string]int64 `json:"skipped,omitempty"`
	// Lacks says what the reviews lack.
	Lacks    []string `json:"lacks"`
	Problems []string `json:"problems,omitempty"`
}

// run imports the logs.
func (f *importFlags) run(ctx context.Context, s cli.Streams, args []string) error {
	key, err := record.ReadKey(f.keyFile)
	if err != nil {
		return fmt.Errorf("--record-key-file %w", err)
	}
	redactor, err := record.NewRedactor(key, nil, nil)
	if err != nil {
		return err
	}
	resources, err := f.resources()
	if err != nil {
		return err
	}
	var (
		problems []error
		done     *auditlog.Result
	)
	line := cli.NewLiveLine(s.Err)
	defer line.Clear()
	err = writeNew(f.file, f.force, func(out io.Writer) error {
		importer, err := auditlog.New(out, redactor, resources, f.now())
		if err != nil {
			return err
		}
		for _, arg := range args {
			err := f.read(ctx, importer, line, s.In, arg)
			if write, ok := errors.AsType[*auditlog.WriteError](err); ok {
				return write
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", cli.OneLine(arg), err))
			}
		}
		if done, err = importer.Close(); err == nil && done.Reviews == 0 {
			err = errNothing
		}
		return err
	})
	line.Clear()
	if err != nil && !errors.Is(err, errNothing) {
		return err
	}
	if err := f.print(s, done, problems); err != nil {
		return err
	}
	switch {
	case len(problems) > 0:
		return errors.Join(problems...)
	case done.Reviews == 0:
		return &cli.ExitError{Code: cli.ExitNo, Err: errors.New("no event makes a review, so that no file was written (hint: the audit policy of the API server needs level RequestResponse)")}
	default:
		return nil
	}
}

// read imports one log.
func (f *importFlags) read(ctx context.Context, importer *auditlog.Importer, line *cli.LiveLine, stdin io.Reader, arg string) error {
	log := stdin
	if arg != "-" {
		file, err := os.Open(arg) // #nosec G304 -- the user names the file
		if err != nil {
			return fmt.Errorf("cannot be read: %w", cli.Cause(err))
		}
		defer file.Close() //nolint:errcheck // it is only read
		log = file
	}
	return importer.Read(ctx, &countedReader{log, func() {
		line.Show(func() string {
			r := importer.Result()
			return fmt.Sprintf("importing: %d events, %d reviews", r.Events, r.Reviews)
		})
	}})
}

// countedReader calls a function at each read.
type countedReader struct {
	io.Reader
	read func()
}

// Read implements io.Reader.
func (r *countedReader) Read(p []byte) (int, error) {
	r.read()
	return r.Reader.Read(p) //nolint:wrapcheck // an io.Reader returns io.EOF as it is
}

// resources returns the resources of Kubernetes and of --config.
func (f *importFlags) resources() (*request.Resources, error) {
	var crds []*unstructured.Unstructured
	if f.config != "" {
		if err := cli.CheckDir("--config", f.config); err != nil {
			return nil, err
		}
		c, err := config.Load(f.config)
		if err != nil {
			return nil, fmt.Errorf("--config:\n%w", err)
		}
		kind := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
		if crds, err = c.Policy.Objects.List(kind, "", labels.Everything()); err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
	}
	return request.NewResources(crds), nil
}

// print prints what was imported.
func (f *importFlags) print(s cli.Streams, done *auditlog.Result, problems []error) error {
	r := importResult{Events: done.Events, Reviews: done.Reviews, Skipped: done.Skipped, Lacks: auditlog.Missing()}
	if done.Reviews > 0 {
		r.File, r.Begin, r.End = f.file, &done.Begin, &done.End
	}
	for _, problem := range problems {
		r.Problems = append(r.Problems, problem.Error())
	}
	if f.output == "json" {
		return cli.WriteJSON(s.Out, &r)
	}
	var b strings.Builder
	if r.File != "" {
		fmt.Fprintf(&b, "%s: %d reviews of %d events, %s to %s\n", cli.OneLine(r.File), r.Reviews, r.Events, cli.FormatTime(r.Begin), cli.FormatTime(r.End))
	}
	reasons := make([]string, 0, len(r.Skipped))
	for reason := range r.Skipped {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int { return cmp.Or(-cmp.Compare(r.Skipped[a], r.Skipped[b]), cmp.Compare(a, b)) })
	if len(reasons) > 0 {
		b.WriteString("skipped:\n")
	}
	for _, reason := range reasons {
		fmt.Fprintf(&b, "  %6d  %s\n", r.Skipped[reason], reason)
	}
	if r.File != "" {
		b.WriteString("the reviews lack:\n")
		for _, lack := range r.Lacks {
			fmt.Fprintf(&b, "  - %s\n", lack)
		}
	}
	_, err := io.WriteString(s.Out, b.String())
	return err
}
