package groupsource

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// maxExpression bounds the text of an expression, in bytes.
const maxExpression = 4 << 10

// errInvalidAnswer is an answer that is not what the source should give.
var errInvalidAnswer = errors.New("the answer is invalid")

// Mapping is a CEL expression over a JSON answer that results in group names. It is
// immutable and safe for concurrent use.
type Mapping struct{ program cel.Program }

// environmentOfAnswers is the API server's CEL environment with the variable answer.
//
//nolint:gochecknoglobals // made once, and immutable
var environmentOfAnswers = sync.OnceValues(func() (*cel.Env, error) {
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: []cel.EnvOption{cel.Variable("answer", cel.DynType)},
	})
	if err != nil {
		return nil, fmt.Errorf("environment of answers: %w", err)
	}
	return set.Env(environment.StoredExpressions)
})

// CompileMapping compiles an expression over the variable answer.
func CompileMapping(text string) (*Mapping, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("has %d bytes, more than %d", len(text), maxExpression)
	}
	env, err := environmentOfAnswers()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("compilation failed: %w", err)
	}
	switch kind := ast.OutputType(); {
	case kind.IsExactType(types.StringType), kind.IsExactType(types.DynType), kind.Kind() == types.ListKind:
	default:
		return nil, fmt.Errorf("results in %s, must be a string or a list of strings", kind)
	}
	program, err := env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency), cel.CostLimit(celconfig.PerCallLimit))
	if err != nil {
		return nil, fmt.Errorf("make a program: %w", err)
	}
	return &Mapping{program}, nil
}

// Names returns the group names in a JSON answer, and the text of its member sub. More than
// limit names, and anything else than names, is an error; its text holds nothing of the
// answer.
func (m *Mapping) Names(ctx context.Context, answer []byte, limit int) (names []string, subject string, err error) {
	value, err := rawjson.Parse(answer)
	if err != nil {
		return nil, "", fmt.Errorf("%w: it is not JSON", errInvalidAnswer)
	}
	decoded, err := value.Decode()
	if err != nil {
		return nil, "", fmt.Errorf("%w: it has a member twice, or a number out of range", errInvalidAnswer)
	}
	if object, ok := decoded.(map[string]any); ok {
		subject, _ = object["sub"].(string)
	}
	result, _, err := m.program.ContextEval(ctx, map[string]any{"answer": decoded})
	if err != nil {
		return nil, "", fmt.Errorf("%w: the expression groups cannot be evaluated: %s", errInvalidAnswer, truncate.Bytes(err.Error(), 200))
	}
	names, err = namesOf(result, limit)
	return names, subject, err
}

// namesOf returns a string or a list of strings.
func namesOf(result ref.Val, limit int) ([]string, error) {
	switch v := result.(type) {
	case types.String:
		return []string{string(v)}, nil
	case types.Null:
		return nil, nil
	case traits.Lister:
		var names []string
		for it := v.Iterator(); it.HasNext() == types.True; {
			if len(names) == limit {
				return nil, TooMany(limit)
			}
			name, ok := it.Next().(types.String)
			if !ok {
				return nil, fmt.Errorf("%w: the expression groups does not result in strings", errInvalidAnswer)
			}
			names = append(names, string(name))
		}
		return names, nil
	default:
		return nil, fmt.Errorf("%w: the expression groups results in %s", errInvalidAnswer, result.Type().TypeName())
	}
}

// TooMany returns the error of an answer with more than so many groups.
func TooMany(limit int) error {
	return fmt.Errorf("the user is in more than %d groups (hint: see maxGroups)", limit)
}
