package cli

import (
	"errors"
	"fmt"
)

// Problems are the errors of flags, which a command reports all at once. A nil error is none.
type Problems []error

// Add adds an error if something is wrong.
func (p *Problems) Add(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Err returns the problems as one error, nil without any.
func (p Problems) Err() error { return errors.Join(p...) }
