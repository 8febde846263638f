package bound

import (
	"errors"
	"fmt"
)

// ErrDocument refuses the expressions and patterns of one document.
var ErrDocument = errors.New("the expressions and patterns of this document are too large in total")

// DocumentHint says what to do about it.
const DocumentHint = "split it into several documents"

// The bounds of one document. Compiling takes some kilobytes and tens of microseconds
// for each byte of an expression, and the bounds above for one expression allow small ones
// that cost more.
const (
	documentExpressions = 500
	documentBytes       = 32 << 10
	documentParts       = 10_000
	documentWork        = 100_000
	documentPatterns    = 20_000
)

// Budget is what the expressions and patterns of one document may cost together. The
// zero value is a document without any so far, and nil has no bounds. It is not safe for
// concurrent use.
type Budget struct {
	// Stop returns an error once the work is to end, as a context's Err does. It may be
	// nil.
	Stop func() error

	texts, bytes, parts, work, patterns int
}

// Add counts an expression, which is to be compiled later. The error is ErrDocument.
func (b *Budget) Add(text string) error {
	if b == nil {
		return nil
	}
	b.texts++
	b.bytes += len(text)
	switch {
	case b.texts > documentExpressions:
		return fmt.Errorf("%w: there are more than %d", ErrDocument, documentExpressions)
	case b.bytes > documentBytes:
		return fmt.Errorf("%w: they have more than %d bytes", ErrDocument, documentBytes)
	default:
		return nil
	}
}

// AddPattern counts a regular expression, which is to be compiled next. The error is
// ErrDocument, ErrTooLarge, or that of Stop.
func (b *Budget) AddPattern(text string) error {
	if err := b.stopped(); err != nil {
		return err
	}
	if err := b.Add(text); err != nil {
		return err
	}
	size := PatternSize(text)
	if size > maxPatterns(len(text)) {
		return fmt.Errorf("%w: a regular expression of this length can have at most %d parts, with repetitions expanded", ErrTooLarge, maxPatterns(len(text)))
	}
	return b.take(&estimate{patterns: size})
}

// take adds the estimate of an expression.
func (b *Budget) take(r *estimate) error {
	if b == nil {
		return nil
	}
	b.parts, b.work, b.patterns = b.parts+r.parts, b.work+r.total(), b.patterns+r.patterns
	switch {
	case b.parts > documentParts:
		return fmt.Errorf("%w: with macros expanded, they have more than %d parts", ErrDocument, documentParts)
	case b.work > documentWork:
		return fmt.Errorf("%w: the squared sizes of their types add up to more than %d", ErrDocument, documentWork)
	case b.patterns > documentPatterns:
		return fmt.Errorf("%w: their regular expressions have more than %d parts, with repetitions expanded", ErrDocument, documentPatterns)
	default:
		return nil
	}
}

// stopped returns the error of Stop.
func (b *Budget) stopped() error {
	if b == nil || b.Stop == nil {
		return nil
	}
	return b.Stop()
}
