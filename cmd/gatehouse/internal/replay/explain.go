package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Find returns the reviews whose ID begins with a prefix, at most a number of them, in the order of
// the recording. They stay valid. The error is that of the context, or says which files could not
// be read to their end; what was found before is returned with it.
func Find(ctx context.Context, sources []Source, prefix string, most int) ([]Item, error) {
	var (
		found []Item
		errs  []error
	)
	for i := range sources {
		if err := find(ctx, &sources[i], prefix, most, &found); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", sources[i].Name, err))
		}
		if ctx.Err() != nil || len(found) >= most {
			break
		}
	}
	return found, errors.Join(errs...)
}

func find(ctx context.Context, source *Source, prefix string, most int, found *[]Item) error {
	file, err := source.Open()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	reader, err := record.NewReader(file)
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	defer reader.Close()
	for len(*found) < most {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		text, err := reader.NextText()
		if errors.Is(err, record.ErrUnfinished) || errors.Is(err, io.EOF) && !errors.Is(err, record.ErrTruncated) {
			return nil
		}
		if err != nil {
			return err //nolint:wrapcheck // the caller does
		}
		one := new(record.Review)
		if _, err := record.DecodeReview(text, one); err != nil {
			return &record.FormatError{Line: reader.Line(), Message: err.Error()}
		}
		if !strings.HasPrefix(one.ID, prefix) {
			continue
		}
		item, err := NewItem(source, reader, text)
		if err != nil {
			return err
		}
		*found = append(*found, *item)
	}
	return nil
}

// NewItem returns the review whose text the Reader has returned last. It stays valid.
func NewItem(source *Source, reader *record.Reader, text []byte) (*Item, error) {
	item := &Item{Source: source, Segment: reader.Segment(), Review: new(record.Review), text: bytes.Clone(text)}
	if _, err := record.DecodeReview(item.text, item.Review); err != nil {
		return nil, &record.FormatError{Line: reader.Line(), Message: err.Error()}
	}
	return item, nil
}

// Configuration returns the configuration that has decided. The error is that it is not beside the recording or cannot be used.
func (i *Item) Configuration() (*config.Config, error) {
	found, err := newLibrary().find(i.Source.Dir, &i.Segment.Header, i.Review)
	if err != nil {
		return nil, err
	}
	return found.config, nil
}

// Explanation is an answer to a review with everything that led to it.
type Explanation struct {
	Subject Subject
	Answer  *Answer
	// Undecided is as in Result.
	Undecided string
	// Policy is that of policy.Set.Decide with explanations, nil unless policies decide.
	Policy *policy.Decision
	// Mutation is that of mutation.Set.Decide with explanations, nil unless mutating policies decide.
	Mutation *mutation.Decision
	// Sidecar is that of sidecar.Set.Decide with explanations, nil unless profiles decide.
	Sidecar *sidecar.Decision
}

// Explain decides a review again, with everything that led to the answer. The error is that the
// review cannot be read.
func (c *Candidate) Explain(ctx context.Context, of *Item) (*Explanation, error) {
	return explain(ctx, of, c)
}

// RecordedAnswer returns the recorded answer to a review.
func RecordedAnswer(ctx context.Context, of *Item) (*Explanation, error) {
	return explain(ctx, of, nil)
}

func explain(ctx context.Context, of *Item, c *Candidate) (*Explanation, error) {
	r := &run{library: newLibrary(), Options: Options{Candidate: c}}
	w := worker{run: r, deciders: map[*configuration]*decider{}}
	it := &item{source: of.Source, segment: newSegment(of.Segment), review: new(record.Review)}
	if err := it.read(of.text); err != nil {
		return nil, err
	}
	out := &Explanation{Subject: subjectOf(it)}
	out.Subject.setWorkload(it)
	switch {
	case c == nil && it.isLogin():
		out.Answer = recordedLogin(it.review)
		return out, nil
	case c == nil:
		recorded := recordedAnswer(it.review)
		out.Answer = recorded.public()
		return out, nil
	}
	if reason := it.unreadable(); reason != "" {
		out.Undecided = reason
		return out, nil
	}
	it.base, it.baseErr = r.library.find(it.source.Dir, &it.segment.Header, it.review)
	w.explain = true
	answer := w.answer(ctx, c, it)
	out.Answer, out.Undecided, out.Policy, out.Mutation, out.Sidecar = answer.public(), answer.undecided, answer.policy, answer.mutation, answer.sidecar
	return out, nil
}
