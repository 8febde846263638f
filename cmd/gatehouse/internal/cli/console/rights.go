package console

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
)

// forbidden matches what API servers answer to a user who lacks a right.
var forbidden = regexp.MustCompile(`cannot ([a-z]+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

// missingRight returns the right that a message of an API server is about, such as "list pods in namespace gatehouse-system".
func missingRight(text string) (right string, ok bool) {
	found := forbidden.FindStringSubmatch(text)
	if found == nil {
		return "", false
	}
	right = found[1] + " " + found[2]
	if group := found[3]; group != "" {
		right += "." + group
	}
	if namespace := found[4]; namespace != "" {
		right += " in namespace " + namespace
	}
	return right, true
}

// explain says for people why something could not be read.
func explain(err error) string {
	if right, ok := missingRight(err.Error()); ok {
		return "the right to " + right + " is missing"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "there was no answer in " + partTimeout.String()
	}
	return err.Error()
}

// explainAll explains errors, each text once, sorted.
func explainAll(errs []error) []string {
	var out []string
	for _, err := range errs {
		if err != nil {
			out = append(out, strings.TrimSpace(explain(err)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
