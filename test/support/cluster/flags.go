package cluster

import (
	"fmt"
	"strings"
)

// mergeFlags returns defaults with the caller's flags laid over them. A flag the caller gives replaces the default of
// that name, where simply appending it would not: the API server adds up the values of a flag that is a list, and
// refuses --authorization-mode=RBAC twice. "--name-" takes a default away. The caller's own repetitions stay.
func mergeFlags(defaults, flags []string) ([]string, error) {
	replaced := map[string]bool{}
	var kept []string
	for _, flag := range flags {
		name, hasValue, err := splitFlag(flag)
		if err != nil {
			return nil, err
		}
		if removed, ok := strings.CutSuffix(name, "-"); ok && !hasValue {
			replaced[removed] = true
			continue
		}
		replaced[name] = true
		kept = append(kept, flag)
	}
	var merged []string
	for _, flag := range defaults {
		name, _, err := splitFlag(flag)
		if err != nil {
			return nil, err
		}
		if !replaced[name] {
			merged = append(merged, flag)
		}
	}
	return append(merged, kept...), nil
}

func splitFlag(flag string) (name string, hasValue bool, err error) {
	rest, ok := strings.CutPrefix(flag, "--")
	name, _, hasValue = strings.Cut(rest, "=")
	if !ok || name == "" || name == "-" {
		return "", false, fmt.Errorf("flag %q is not of the form --name=value, --name, or --name- to take a default away", flag)
	}
	return name, hasValue, nil
}
