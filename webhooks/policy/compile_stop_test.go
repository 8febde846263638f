package policy_test

import (
	"errors"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestCompileStops holds that Compile asks between expressions whether to go on, compiles
// none once it is not to, and then has no Set.
func TestCompileStops(t *testing.T) {
	t.Parallel()
	spec := specOf(t, own(`variables: [{name: v, expression: "1"}], validations: [{expression: "variables.v == 1", messageExpression: "'no'"}, {expression: "true"}]`))
	late := errors.New("late")
	total := 0
	spec.Stop = func() error {
		total++
		return nil
	}
	if _, err := policy.Compile(spec); err != nil {
		t.Fatal(err)
	}
	if total < 5 { // one for each expression, and one at the end
		t.Errorf("it asks %d times", total)
	}
	for first := range total {
		calls := 0
		spec.Stop = func() error {
			if calls++; calls > first {
				return late
			}
			return nil
		}
		if set, err := policy.Compile(spec); set != nil || !errors.Is(err, late) {
			t.Errorf("from call %d on: %v, %v", first, set, err)
		}
	}
}
