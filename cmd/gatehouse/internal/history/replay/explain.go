package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Find returns the reviews whose ID begins with a prefix, at most a number of them, in the order of
// the recording. The error is that of the context, or says which files could not
// be read to their end; what was found before is returned with it.
func Find(ctx context.Context, sources []Source, prefix string, most int) ([]*Item, error) {
	var (
		found []*Item
		errs  []error
	)
	for i := range sources {
		_, err := Each(ctx, &sources[i], func(reader *record.Reader, review *record.Review) error {
			if strings.HasPrefix(review.ID, prefix) {
				found = append(found, newItem(&sources[i], newSegment(reader.Segment()), review))
			}
			if len(found) >= most {
				return io.EOF
			}
			return nil
		})
		if err != nil && !errors.Is(err, record.ErrUnfinished) {
			errs = append(errs, fmt.Errorf("%s: %w", sources[i].Name, err))
		}
		if ctx.Err() != nil || len(found) >= most {
			break
		}
	}
	return found, errors.Join(errs...)
}

// Each calls a function with each review of a file, until it returns an error, of which io.EOF is not returned, and returns how many
// reviews the server could not record. The error is record.ErrUnfinished for a file that has no end.
func Each(ctx context.Context, source *Source, visit func(*record.Reader, *record.Review) error) (missing int64, err error) {
	file, err := source.Open()
	if err != nil {
		return 0, errors.New(strings.TrimPrefix(err.Error(), "open "+source.Name+": "))
	}
	defer file.Close() //nolint:errcheck // it was only read
	reader, err := record.NewReader(file)
	if err != nil {
		return 0, err //nolint:wrapcheck // the caller names the file
	}
	defer reader.Close()
	for {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		review, err := reader.Next()
		if err == nil {
			err = visit(reader, review)
		}
		if errors.Is(err, io.EOF) {
			return reader.Missing(), nil
		}
		if err != nil {
			return reader.Missing(), err //nolint:wrapcheck // the caller names the file
		}
	}
}

// Explanation is an answer to a review with everything that led to it.
type Explanation struct {
	Answer *Answer
	// Undecided is as in Result.
	Undecided string
	// Policy, Mutation and Sidecar are those of Decide with explanations, nil for what does not decide.
	Policy   *policy.Decision
	Mutation *mutation.Decision
	Sidecar  *sidecar.Decision
}

// Recorded returns the recorded answer to a review.
func (i *Item) Recorded() *Answer {
	recorded := i.recordedAnswer()
	return recorded.public()
}

// Explain decides a review again, with everything that led to the answer.
func (c *Candidate) Explain(ctx context.Context, it *Item) Explanation {
	if reason := it.unreadable(); reason != "" {
		return Explanation{Undecided: reason}
	}
	w := worker{run: &run{library: newLibrary()}, deciders: map[*configuration]*decider{}, explain: true}
	it.base, it.baseErr = w.base(it)
	answer := w.answer(ctx, c, it)
	return Explanation{answer.public(), answer.undecided, answer.policy, answer.mutation, answer.sidecar}
}
