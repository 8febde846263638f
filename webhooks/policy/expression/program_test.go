package expression_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

func TestPhaseBudget(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	program := compile(t, compiler, nil, "object.a == 1 && object.b == 2")
	failing := compile(t, compiler, nil, "object.a == 1 && object.nothing == 2")
	from := withObject(t, `{"a": 1, "b": 2}`)
	var input expression.Input
	input.Reset(from, nil, nil)
	_, cost, err := input.Phase(math.MaxInt64).Eval(context.Background(), program)
	if err != nil || cost <= 0 {
		t.Fatalf("costs %d, %v", cost, err)
	}
	for _, test := range []struct {
		budget int64
		want   int // how many can be evaluated
	}{{-1, 0}, {0, 0}, {cost - 1, 0}, {cost, 1}, {2*cost - 1, 1}, {2 * cost, 2}, {math.MaxInt64, 5}} {
		input.Reset(from, nil, nil)
		phase, done := input.Phase(test.budget), 0
		for range 5 {
			value, own, err := phase.Eval(context.Background(), program)
			if own != cost {
				t.Errorf("costs %d, want %d", own, cost)
			}
			if err != nil {
				if !isOutOfBudget(err) || value != nil {
					t.Errorf("with %d: %v, %v", test.budget, value, err)
				}
				break
			}
			done++
		}
		if done != test.want {
			t.Errorf("with %d, %d are evaluated, want %d", test.budget, done, test.want)
		}
		if left := test.budget - int64(done)*cost; phase.Remaining != left {
			t.Errorf("with %d, %d is left, want %d", test.budget, phase.Remaining, left)
		}
	}

	// What fails costs as well, and the next one is evaluated.
	input.Reset(from, nil, nil)
	phase := input.Phase(1000)
	_, own, err := phase.Eval(context.Background(), failing)
	var failure *expression.EvaluationError
	if !errors.As(err, &failure) || isOutOfBudget(err) {
		t.Fatalf("got %v", err)
	}
	if want := "expression 'object.a == 1 && object.nothing == 2' resulted in error: no such key: nothing"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if phase.Remaining != 1000-own || own <= 0 || input.Spent != own {
		t.Errorf("costs %d, %d is left, %d spent", own, phase.Remaining, input.Spent)
	}
	if _, _, err := phase.Eval(context.Background(), program); err != nil {
		t.Error(err)
	}
}

// TestEndedContext holds that what has a loop ends with its context.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	loop := "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"
	variables := declare(t, compiler, pair{"v", loop}, pair{"through", "variables.v"})
	for _, text := range []string{loop, "variables.v", "variables.through"} {
		var input expression.Input
		input.Reset(withObject(t, "{}"), nil, variables)
		_, _, err := input.Phase(math.MaxInt64/2).Eval(ctx, compile(t, compiler, variables, text))
		if err == nil || !strings.Contains(err.Error(), "operation interrupted") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "1", "latest", "1.x"} {
		if _, err := expression.NewCompiler(version, nil); err == nil || err.Error() != fmt.Sprintf("%q is not a Kubernetes version such as \"1.36\"", version) {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	variables := declare(t, compiler, pair{"a", "oldObject.a"}, pair{"b", "authorizer.path('/x').check('get').allowed()"},
		pair{"c", "variables.a == 1 || request.options == null"}, pair{"who", "request.userInfo.uid"})
	for text, want := range map[string]expression.Uses{
		"true":                          0,
		"object.a == 1":                 expression.UsesObject,
		".object.a == 1":                expression.UsesObject,
		"object.oldObject == 1":         expression.UsesObject,
		"object.a == request.name":      expression.UsesObject | expression.UsesRequest | expression.UsesName,
		"object.a == request.namespace": expression.UsesObject | expression.UsesRequest,
		"namespaceObject == null":       expression.UsesNamespace,
		"authorizer.requestResource.check('get').allowed()": expression.UsesAuthorizer,
		// A variable counts with those that it names itself.
		"variables.a == 1":                      expression.UsesVariables | expression.UsesOldObject,
		"has(variables.b)":                      expression.UsesVariables | expression.UsesAuthorizer,
		"variables.c":                           expression.UsesVariables | expression.UsesOldObject | expression.UsesRequest | expression.UsesUser | expression.UsesOptions,
		"variables.who == ''":                   expression.UsesVariables | expression.UsesRequest | expression.UsesUser | expression.UsesUserInfo,
		"dyn(variables) == 1":                   expression.UsesVariables | expression.UsesOldObject | expression.UsesAuthorizer | expression.UsesRequest | expression.UsesUser | expression.UsesOptions | expression.UsesUserInfo,
		"[1].exists(variables, variables == 1)": expression.UsesVariables | expression.UsesOldObject | expression.UsesAuthorizer | expression.UsesRequest | expression.UsesUser | expression.UsesOptions | expression.UsesUserInfo,
		"request.operation == 'CREATE'":         expression.UsesRequest | expression.UsesUser | expression.UsesOperation,
		"has(request.dryRun)":                   expression.UsesRequest | expression.UsesUser | expression.UsesDryRun,
		"request.options == request.name":       expression.UsesRequest | expression.UsesUser | expression.UsesOptions | expression.UsesName,
		"dyn(request) == 1":                     expression.UsesRequest | expression.UsesUser | expression.UsesAllOfRequest,
		"[1].all(object, object == 1)":          expression.UsesObject,
	} {
		if got := compile(t, compiler, variables, text).Uses(); got != want {
			t.Errorf("%s uses %b, want %b", text, got, want)
		}
	}
}
