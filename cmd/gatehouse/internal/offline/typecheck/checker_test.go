package typecheck_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
)

// TestTooLarge holds that nothing is checked that could never be: neither one
// expression, nor variables that grow from one to the next.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	checker, err := typecheck.NewChecker(typecheck.New(nil), "1.36")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checker.Parse("[1]" + strings.Repeat(".map(a, {a: a})", 40) + " == []"); !errors.Is(err, celbound.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	scope := checker.Scope(nil, nil)
	var issues []string
	for i := range 40 {
		parsed, err := checker.Parse(fmt.Sprintf("{variables.v%[1]d: variables.v%[1]d}", i))
		if i == 0 {
			parsed, err = checker.Parse("{1: 1}")
		}
		if err != nil {
			t.Fatal(err)
		}
		checked := scope.Check(parsed)
		for _, issue := range checked.Issues {
			issues = append(issues, issue.Message)
		}
		scope.Declare(fmt.Sprintf("v%d", i+1), checked)
	}
	if len(issues) == 0 || !strings.Contains(issues[0], celbound.ErrTooLarge.Error()) {
		t.Errorf("got %q", issues)
	}
}
