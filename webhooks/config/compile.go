package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// CompileDir reads and compiles a configuration and returns every error and
// warning of both, in a fixed order: a document that cannot be read does not
// hide what is wrong with the others. With an error there is no Snapshot,
// and the Config is not to be used.
func CompileDir(dir string) (*Config, *webhooks.Snapshot, diagnostic.List) {
	c, found := Inspect(dir)
	snapshot, found := Compile(c, found)
	return c, snapshot, found
}

// Spec returns what the endpoints are compiled from.
func (c *Config) Spec() webhooks.Spec {
	spec := webhooks.Spec{Digest: c.Digest, Sidecar: c.Sidecar, Policy: c.Policy, Authn: c.Authn, Mutation: c.Mutation}
	spec.Mutation.Objects, spec.Mutation.Authorizer = c.Policy.Objects, c.Policy.Authorizer
	spec.Mutation.KeepBroken, spec.Mutation.Stop = c.Policy.KeepBroken, c.Policy.Stop
	return spec
}

// Compile compiles a configuration and returns all errors and warnings, those that were found when it was read included. With
// an error there is no Snapshot.
func Compile(c *Config, found diagnostic.List) (*webhooks.Snapshot, diagnostic.List) {
	snapshot, err := webhooks.Compile(c.Spec())
	var list diagnostic.List
	switch {
	case err == nil:
		found = append(found, snapshot.Warnings().WithoutFollowers(found)...)
	case errors.As(err, &list):
		found = append(found, list.WithoutFollowers(found)...)
	default:
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Message: err.Error()})
	}
	found.Sort()
	if found.Err() != nil {
		snapshot = nil
	}
	return snapshot, found
}

// InvalidError returns the error of a command that needs the configuration in a directory, with everything that is wrong with
// it.
func InvalidError(dir string, err error) error {
	return fmt.Errorf("the configuration in %s is invalid:\n%w", dir, WithPaths(dir, err))
}

// WithPaths returns an error about the configuration in a directory for the person who named the directory: each diagnostic
// with its severity, and with a path that can be opened from the working directory. Diagnostics themselves have paths below
// the directory.
func WithPaths(dir string, err error) error {
	list, ok := errors.AsType[diagnostic.List](err)
	if !ok {
		return err
	}
	lines := make([]string, len(list))
	for i, f := range list {
		if f.Source != "" && f.Source != dir {
			f.Source = filepath.ToSlash(filepath.Join(dir, filepath.FromSlash(f.Source)))
		}
		lines[i] = string(f.Severity) + ": " + f.String()
	}
	return errors.New(strings.Join(lines, "\n"))
}
