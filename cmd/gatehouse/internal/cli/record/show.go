package record

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// showFlags are what the command line of record show says.
type showFlags struct {
	filter     reviewFilter
	decisions  []string
	policies   []string
	name       string
	id, output string
	full       bool
}

func newShowCommand(s cli.Streams) *cobra.Command {
	var f showFlags
	cmd := &cobra.Command{
		Use:   "show RECORDING…",
		Short: "List the reviews in recordings",
		Long: `Show lists the reviews in recordings: when, which endpoint, the decision, and what
was requested by whom. A RECORDING is a file, or a directory of such files. Filters
of different kinds must all match.

With --full and -o json, show prints everything that was recorded: the request, the
answer, and what the decision read. If a file is damaged or ends early, show lists
what precedes that and exits with 2.

Exit codes: 0 listed, 1 no review matches, 2 wrong usage, or a file cannot be read
to its end.`,
		Example: `  gatehouse record show prod.gatehouse.zst

  # what was refused in two namespaces today
  gatehouse record show prod.gatehouse.zst --decision denied -n shop -n billing --since 24h

  # one review, with request and answer
  gatehouse record show prod.gatehouse.zst --id 0f5c --full -o json | jq

  # by whom, by number
  gatehouse record show /var/lib/gatehouse/recording -o json | jq -r .user | sort | uniq -c`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("a recording is missing (hint: gatehouse record show FILE)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(time.Now()); err != nil {
				return err
			}
			return f.run(cmd.Context(), s, args)
		},
	}
	flags := cmd.Flags()
	f.filter.add(cmd, "show")
	flags.StringArrayVar(&f.decisions, "decision", nil, "show only reviews with this decision: "+strings.Join(decisions(), ", ")+"; repeatable")
	flags.StringArrayVar(&f.policies, "policy", nil, "show only reviews that this policy, profile or scope refused, warned about or changed, as recorded: a name, or KIND/NAME; repeatable")
	flags.StringVar(&f.name, "name", "", "show only reviews of objects whose name contains this text, in upper or lower case")
	flags.StringVar(&f.id, "id", "", "show only reviews whose ID begins with this text")
	flags.BoolVar(&f.full, "full", false, "with -o json: show the request, the answer, and what the decision read")
	cli.AddOutputFlag(cmd, &f.output, "table", "json")
	return cmd
}

func decisions() []string {
	return []string{string(review.Allowed), string(review.Denied), string(review.NoOpinion), string(review.Unknown), string(review.Refused), string(review.Shed)}
}

// check returns everything that is wrong with the flags.
func (f *showFlags) check(now time.Time) error {
	errs := cli.Problems{checkValues("--decision", f.decisions, decisions()), f.filter.check(now)}
	errs.Add(f.full && f.output == "table", "--full needs -o json")
	return errs.Err()
}

// shownReview is a review as record show prints it.
type shownReview struct {
	replay.Subject

	Took     string   `json:"took,omitempty"`
	Decision string   `json:"decision,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Causes are the rules that refused or warned, and what was injected or changed.
	Causes   []replay.Cause `json:"causes,omitempty"`
	Redacted []string       `json:"redacted,omitempty"`
	Token    *record.Token  `json:"token,omitempty"`
	Config   string         `json:"config,omitempty"`
	Replica  string         `json:"replica,omitempty"`
	// The following are there with --full. Objects are those that lookups name, by digest.
	Request  json.RawMessage            `json:"request,omitempty"`
	Response json.RawMessage            `json:"response,omitempty"`
	Lookups  *record.Lookups            `json:"lookups,omitempty"`
	Objects  map[string]json.RawMessage `json:"objects,omitempty"`
}

// summarize returns what a review is about, and the answer.
func summarize(r *record.Review, header *record.Header) shownReview {
	s := shownReview{
		Subject: replay.SubjectOf(r), Decision: string(r.Decision), Reason: r.Reason, Redacted: r.Redacted, Token: r.Token,
		Config: r.Config, Replica: header.Replica, Causes: replay.RecordedCauses(r),
	}
	if r.Took > 0 {
		s.Took = r.Took.String()
	}
	answer := rawjson.Value(r.Response)
	status := answer.Get("status")
	// The error is that of a login, and a reason without a message that of an access review.
	s.Message = cmp.Or(status.Get("message").Text(), status.Get("error").Text(), status.Get("reason").Text())
	for _, warning := range answer.Get("warnings").Elements() {
		s.Warnings = append(s.Warnings, warning.Text())
	}
	return s
}

// matches reports whether the filters select a review.
func (f *showFlags) matches(s *shownReview) bool {
	return strings.HasPrefix(s.ID, f.id) && isAny(f.decisions, s.Decision) && f.filter.matches(&s.Subject) &&
		strings.Contains(strings.ToLower(s.Name), strings.ToLower(f.name)) &&
		(len(f.policies) == 0 || slices.ContainsFunc(s.Causes, func(c replay.Cause) bool { return c.Matches(f.policies) }))
}

// run lists the reviews of all files.
func (f *showFlags) run(ctx context.Context, s cli.Streams, args []string) error {
	sources, problems := replay.Sources(args)
	if len(sources) == 0 {
		return errors.Join(problems...)
	}
	out := newReviewWriter(s.Out, f.output)
	listing := &listing{flags: f, out: out, remarks: s.Err}
	for i := range sources {
		err := listing.file(ctx, &sources[i])
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if listing.failed != nil {
			return listing.failed
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", cli.OneLine(sources[i].Name), err))
		}
	}
	if listing.read == 0 && len(problems) > 0 {
		return errors.Join(problems...)
	}
	if err := out.flush(); err != nil {
		return err
	}
	if f.output == "table" {
		listing.sum()
	}
	switch {
	case len(problems) > 0:
		return errors.Join(problems...)
	case listing.shown == 0:
		return &cli.ExitError{Code: cli.ExitNo}
	default:
		return nil
	}
}

// listing is the state of record show.
type listing struct {
	flags   *showFlags
	out     *reviewWriter
	remarks io.Writer

	read, shown, denied, missing int64
	unfinished                   int
	// failed is the error of standard output, which ends the listing.
	failed error
}

// file lists the reviews of a file.
func (l *listing) file(ctx context.Context, source *replay.Source) error {
	missing, err := replay.Each(ctx, source, func(reader *record.Reader, one *record.Review) error {
		l.read++
		if !l.flags.filter.hasTime(one.Time) {
			return nil
		}
		row := summarize(one, &reader.Segment().Header)
		if !l.flags.matches(&row) {
			return nil
		}
		if l.shown++; row.Decision == string(review.Denied) {
			l.denied++
		}
		if l.flags.full {
			row.Request, row.Response, row.Lookups, row.Objects = one.Request, one.Response, one.Lookups, map[string]json.RawMessage{}
			one.Lookups.EachObject(func(digest string) {
				if object := reader.Segment().Object(digest); object != nil {
					row.Objects[digest] = object
				}
			})
		}
		l.failed = l.out.write(&row)
		return l.failed
	})
	l.missing += missing
	if errors.Is(err, record.ErrUnfinished) {
		l.unfinished++
		return nil
	}
	return err
}

// sum sums up on standard error.
func (l *listing) sum() {
	text := fmt.Sprintf("%s of %d", diagnostic.Count(int(l.shown), "review"), l.read)
	if l.denied > 0 {
		text += fmt.Sprintf(", %d denied", l.denied)
	}
	if l.missing > 0 {
		text += fmt.Sprintf("; %d more could not be recorded", l.missing)
	}
	if l.unfinished > 0 {
		text += fmt.Sprintf("; without an end yet, as of a server that runs: %s", diagnostic.Count(l.unfinished, "segment"))
	}
	_, _ = fmt.Fprintln(l.remarks, text) // remarks only
}

// reviewWriter writes reviews in a format, without keeping them.
type reviewWriter struct {
	out   *bufio.Writer
	table *tabwriter.Writer
	n     int
}

// tableRows is how many rows of a table are aligned with each other.
const tableRows = 1000

func newReviewWriter(out io.Writer, format string) *reviewWriter {
	w := &reviewWriter{out: bufio.NewWriterSize(out, 64<<10)}
	if format == "table" {
		const padding = 2
		w.table = tabwriter.NewWriter(w.out, 0, 0, padding, ' ', 0)
	}
	return w
}

// write writes a review.
func (w *reviewWriter) write(r *shownReview) error {
	if w.table == nil {
		return cli.WriteJSONLine(w.out, r)
	}
	w.n++
	return w.row(r)
}

// row writes a row of the table.
func (w *reviewWriter) row(r *shownReview) error {
	if w.n == 1 {
		_, _ = fmt.Fprintln(w.table, "TIME\tENDPOINT\tDECISION\tOPERATION\tKIND\tNAMESPACE\tNAME\tUSER\tID") // Flush returns errors
	}
	const most = 63 // characters, as most names have
	name := func(text string) string { return cmp.Or(cli.OneLine(truncate.Runes(text, most)), "-") }
	decision := r.Decision
	if len(r.Warnings) > 0 {
		decision += ", warned"
	}
	cells := []string{
		r.Time.UTC().Format("2006-01-02T15:04:05.000Z"), name(r.Endpoint), name(decision), name(r.Operation), name(kindText(&r.Subject)), name(r.Namespace), name(r.Name), name(r.User), name(r.ID),
	}
	_, _ = fmt.Fprintln(w.table, strings.Join(cells, "\t")) // Flush returns errors
	if w.n%tableRows != 0 {
		return nil
	}
	return w.table.Flush()
}

// flush writes out what is in memory.
func (w *reviewWriter) flush() error {
	if w.table != nil {
		_ = w.table.Flush() // the other one has the error, too
	}
	return w.out.Flush()
}
