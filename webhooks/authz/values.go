package authz

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// The bounds of a scope as a user's extra: every audit event of the user repeats it, and the API server does not cache a decision
// on 10,000 bytes or more of a request.
const (
	maxBytes      = 4 << 10
	maxValues     = 64
	maxRules      = 32
	maxNamespaces = 32
)

// namespacePrefix begins the values that are namespaces. A name has no "=", and a rule begins with "{".
const namespacePrefix = "namespace="

// Values returns a scope as values of a user's extra: its name, or each rule as compact JSON, and then each namespace behind
// "namespace=". Equal scopes have equal values.
func Values(scope *v1alpha1.TokenScope) []string {
	values := make([]string, 0, 1+len(scope.Rules)+len(scope.Namespaces))
	if scope.Name != "" {
		values = append(values, scope.Name)
	}
	for i := range scope.Rules {
		text, err := json.Marshal(&scope.Rules[i])
		if err != nil { // of strings it does not fail
			text = []byte("{}") // which no request is in
		}
		values = append(values, string(text))
	}
	for _, namespace := range scope.Namespaces {
		values = append(values, namespacePrefix+namespace)
	}
	return values
}

// parse reads what Values writes. The error is for the person whose token it is.
func parse(values []string) (*v1alpha1.TokenScope, error) {
	scope := &v1alpha1.TokenScope{}
	size := 0
	for i, value := range values {
		if size += len(value); size > maxBytes || i >= maxValues {
			return nil, errors.New("it is too large")
		}
		switch {
		case strings.HasPrefix(value, "{"):
			rule, err := parseRule(value)
			if err != nil {
				return nil, fmt.Errorf("value %d: %w", i, err)
			}
			scope.Rules = append(scope.Rules, rule)
		case strings.HasPrefix(value, namespacePrefix):
			scope.Namespaces = append(scope.Namespaces, value[len(namespacePrefix):])
		case scope.Name == "" && isLabel(value):
			scope.Name = value
		default:
			return nil, fmt.Errorf("value %d is neither a name, nor a rule, nor a namespace", i)
		}
	}
	if (scope.Name == "") == (len(scope.Rules) == 0) {
		return nil, errors.New("it must have either a name or rules")
	}
	return scope, nil
}

// parseRule reads a rule. A member that is not known here could narrow the rule.
func parseRule(text string) (rule v1alpha1.ScopeRule, err error) {
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&rule); err != nil {
		return rule, errors.New("it is not a rule")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return rule, errors.New("something follows the rule")
	}
	return rule, nil
}
