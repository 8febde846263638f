package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
)

// joined is what a joined recording holds.
type joined struct {
	// reviews is the number of reviews, begin and end are the times of the first and the last, gaps is the number of reviews
	// that servers could not record, and unfinished that of segments without an end.
	reviews, gaps int64
	begin, end    time.Time
	unfinished    int
}

// errNothing means that there are no reviews.
var errNothing = errors.New("there are no reviews")

// join writes the lines of several files into a new one, but for reviews that are earlier than since, unless that is zero. Problem
// gets what of the files cannot be read. The new file appears when it is complete; if it exists, it is replaced.
func join(ctx context.Context, path string, from []string, since time.Time, problem func(file string, err error), progress func(reviews int64)) (j joined, err error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".gatehouse-*")
	if err != nil {
		return j, fmt.Errorf("%s: %w", path, cli.Cause(err))
	}
	defer os.Remove(temporary.Name()) //nolint:errcheck // it is there only after an error
	defer temporary.Close()           //nolint:errcheck // its error has been noted if it matters
	writer, err := record.NewWriter(temporary)
	if err != nil {
		return j, err //nolint:wrapcheck // it does not fail
	}
	for _, file := range from {
		failed, err := j.add(ctx, writer, file, since, progress)
		if err != nil {
			_ = writer.Close() // it frees memory
			return j, err
		}
		if failed != nil {
			problem(file, failed)
		}
	}
	if err := errors.Join(writer.Close(), temporary.Close()); err != nil {
		return j, fmt.Errorf("%s: %w", path, err)
	}
	if j.reviews == 0 {
		return j, errNothing
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return j, fmt.Errorf("%s: %w", path, cli.Cause(err))
	}
	return j, nil
}

// add writes the lines of a file. Failed is why the file cannot be read to its end: what is before that is written.
func (j *joined) add(ctx context.Context, out io.Writer, path string, since time.Time, progress func(int64)) (failed, err error) {
	file, err := os.Open(path) // #nosec G304 -- the caller has made the file
	if err != nil {
		return cli.Cause(err), nil
	}
	defer file.Close() //nolint:errcheck // it is only read
	reader, err := record.NewReader(file)
	if err != nil {
		return err, nil
	}
	defer reader.Close()
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		text, review, err := reader.NextLine()
		switch {
		case err == nil:
		case errors.Is(err, record.ErrUnfinished):
			j.unfinished++
			fallthrough
		case errors.Is(err, io.EOF):
			j.gaps += reader.Missing()
			return nil, nil
		default:
			j.gaps += reader.Missing()
			return err, nil
		}
		if review != nil {
			if review.Time.Before(since) {
				continue
			}
			j.count(review.Time)
			progress(j.reviews)
		}
		if _, err := out.Write(text); err != nil {
			return nil, fmt.Errorf("write the recording: %w", cli.Cause(err))
		}
	}
}

func (j *joined) count(at time.Time) {
	if j.reviews++; j.begin.IsZero() || at.Before(j.begin) {
		j.begin = at
	}
	if at.After(j.end) {
		j.end = at
	}
}
