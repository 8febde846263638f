package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/auditlog"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/drill"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// pastFlags name requests of the past.
type pastFlags struct {
	recordings, logs []string
	since, until     string
	from, to         time.Time
}

func (f *pastFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.recordings, "record", nil, "file or directory of a recording: also say which of its requests would have failed; repeatable")
	flags.StringArrayVar(&f.logs, "audit-log", nil, "audit log of the API server, JSON lines, also compressed with gzip: also say which of its requests would have failed; repeatable")
	flags.StringVar(&f.since, "since", "", "with --record or --audit-log: count requests since this time, such as 2026-11-20T12:00:00Z, or 24h or 7d before now (default: the worst hour is shown)")
	flags.StringVar(&f.until, "until", "", "with --record or --audit-log: count requests before this time, as in --since")
}

// given reports whether there are requests of the past.
func (f *pastFlags) given() bool { return len(f.recordings)+len(f.logs) > 0 }

// check parses the times, and returns what is wrong with the flags.
func (f *pastFlags) check(now time.Time) error {
	var errs cli.Problems
	for _, of := range []struct {
		flag, value string
		into        *time.Time
	}{{"--since", f.since, &f.from}, {"--until", f.until, &f.to}} {
		if of.value != "" {
			var err error
			*of.into, err = cli.ParseTime(of.value, now)
			errs.Add(err != nil, "%s %q: %w", of.flag, of.value, err)
		}
	}
	errs.Add(!f.from.IsZero() && !f.to.IsZero() && !f.from.Before(f.to), "--since must be before --until")
	errs.Add(!f.given() && f.since+f.until != "", "--since and --until are for --record and --audit-log")
	return errs.Err()
}

// judge judges the requests of the past. It returns what could not be read.
func (f *pastFlags) judge(ctx context.Context, d *drill.Drill, progress func(string)) (unread []string, err error) {
	d.Window(f.from, f.to)
	problem := func(name string, err error) { unread = append(unread, cli.InertName(name)+": "+cli.Inert(err.Error())) }
	requests := 0
	judge := func(stream string, at time.Time, r *drill.Request) error {
		if requests++; requests%1000 == 0 {
			progress(diagnostic.Count(requests, "request") + " judged")
		}
		return d.AddRequest(ctx, stream, at, r)
	}
	sources, problems := replay.Sources(f.recordings)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for i := range sources {
		missing, err := replay.Each(ctx, &sources[i], func(_ *record.Reader, review *record.Review) error {
			if review.Endpoint != "mutate" && review.Endpoint != "validate" {
				return nil
			}
			r, err := drill.OfReview(review.Request, len(review.Redacted) > 0)
			if err == nil {
				err = judge(review.Endpoint, review.Time, r)
			}
			if err != nil && ctx.Err() == nil {
				problem(sources[i].Name, fmt.Errorf("review %s: %w", review.ID, err))
				return nil
			}
			return err
		})
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil && !errors.Is(err, record.ErrUnfinished) {
			problem(sources[i].Name, err)
		}
		if missing > 0 {
			problem(sources[i].Name, fmt.Errorf("%s could not be recorded", diagnostic.Count(int(missing), "review")))
		}
	}
	for _, name := range f.logs {
		if err := readLog(ctx, name, judge); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			problem(name, err)
		}
	}
	return unread, nil
}

// readLog judges the requests of an audit log. The error is what cannot be read of it.
func readLog(ctx context.Context, name string, judge func(string, time.Time, *drill.Request) error) error {
	file, err := os.Open(name) // #nosec G304 -- the user names the file
	if err != nil {
		return fmt.Errorf("cannot be read: %w", cli.Cause(err))
	}
	defer file.Close() //nolint:errcheck // it was only read
	reader, err := auditlog.NewReader(file)
	if err != nil {
		return err
	}
	var first error
	for bad := 0; ctx.Err() == nil; {
		event, err := reader.Next()
		if err == nil {
			if r, at, ok := drill.OfEvent(event); ok {
				err = judge("audit log", at, r)
			}
		}
		line := (*auditlog.LineError)(nil)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, auditlog.ErrUnfinished):
			if bad > 1 {
				return fmt.Errorf("%w (and %s)", first, diagnostic.Count(bad-1, "more line"))
			}
			return first
		case event != nil, errors.As(err, &line):
			if bad++; first == nil {
				first = err
			}
		default:
			return err
		}
	}
	return context.Cause(ctx)
}
