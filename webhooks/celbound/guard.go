package celbound

import "github.com/google/cel-go/cel"

// Guard makes expressions fail whose result depends on a value that is not known. It is for
// the replay of recordings, in which values are replaced by placeholders.
type Guard interface {
	// Option returns the option of programs by which a call whose result depends on such a
	// value is an error. Explain has to be called with the errors of such a program.
	Option(env *cel.Env) cel.ProgramOption
	// Explain returns the error of a guarded program. It wraps Err unless it is known that no
	// such value is the reason.
	Explain(err error) error
	// Depends reports whether the error of a guarded program may be due to such a value.
	Depends(err error) bool
	// Err is wrapped by the errors of expressions whose result depends on such a value.
	Err() error
	// Is reports whether a string stands for such a value.
	Is(text string) bool
}
