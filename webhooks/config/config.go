// Package config reads the documents of a directory into the specs from which the endpoints are compiled. Load and Inspect
// read a directory, and CompileDir also compiles it.
//
// Reading is strict, because a document that does less than its author believes is a security hole: an unknown field, a
// duplicate key, an unknown kind and a second object of the same name are errors, and all errors are reported at once. The
// packages that compile a document check what it means.
package config

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/rbac"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Config is what a directory holds. It is immutable, and safe for concurrent
// use, once Load has returned it.
type Config struct {
	// Digest names the configuration: the SHA-256, in hexadecimal digits, of
	// the paths and contents of all files read. Two directories with the same
	// files have the same digest.
	Digest string
	// State changes with everything that was read, files that documents name included. It
	// must not be shown: passwords in these files could be guessed by it.
	State string
	// Files is the number of files read, and Documents that of the documents in them,
	// tests left out.
	Files, Documents int
	// Empty are the files without such a document, and Filled those with one. Both are sorted.
	Empty, Filled []string
	// LookedUp are the documents that policies and templates look up where no cluster has them: namespaces, params, RBAC objects.
	LookedUp []string
	// Unread is the part of the directory that may hold documents that this Config lacks.
	Unread Unread
	// Sidecar, Policy and Authn are the specs of the endpoints. The context
	// objects of the directory are in Sidecar.Namespaces, Sidecar.ConfigMaps and Policy.Objects,
	// and its RBAC objects, if it has any, are Policy.Authorizer. Policy.Now and
	// Authn.Now are the wall clock.
	Sidecar sidecar.Spec
	Policy  policy.Spec
	Authn   authn.Spec
	// Mutation has the policies that change objects, and Mutation.Schemas are the context's CustomResourceDefinitions.
	// What else they look up, and what is kept of them, is as Policy says: Spec copies it.
	Mutation mutation.Spec
	// Directories are the LDAP services, with what connecting to them needs. They are
	// those of Authn.Directories, in the same order; nobody has connected there.
	Directories []Directory
	// GroupSources are the group sources of all issuers, with what asking them needs.
	GroupSources []GroupSource
	// Recording is the RecordingConfiguration, nil without one. The server ignores it: it takes that of --record-config.
	Recording *Recording
	// Context are the objects that policies and templates may look up.
	Context []*unstructured.Unstructured
	// Warnings are diagnostics that are no errors.
	Warnings diagnostic.List
}

// Workloads are the kinds that the PolicyConfiguration names as holding a pod
// template. Commands that read manifests know them beside those of --workload.
func (c *Config) Workloads() []v1alpha1.WorkloadKind {
	if c.Policy.Configuration == nil {
		return nil
	}
	return c.Policy.Configuration.Workloads
}

// Load reads every document in dir and the directories below it: files that end in .yaml, .yml or .json, also through
// symbolic links, without kustomization files and names that begin with a dot. The error is a diagnostic.List of all
// errors, in a fixed order, and then there is no Config.
//
// Load reads the directory until two readings agree, so that a configuration never mixes two versions.
func Load(dir string) (*Config, error) {
	config, found := Inspect(dir)
	if err := found.Err(); err != nil {
		return nil, err
	}
	return config, nil
}

// Inspect returns every diagnostic, and as much of the configuration as could be decoded.
// If one is an error, the Config is only good for finding further errors in it.
func Inspect(dir string) (*Config, diagnostic.List) {
	return readStable(dir).decode()
}

// InspectPaths is Inspect for files and directories, and for texts by the names that they are given, which are one configuration
// together. Sources begin with these paths and names. They may have no document.
func InspectPaths(paths []string, texts map[string][]byte) (*Config, diagnostic.List) {
	return readPaths(paths, texts).decode()
}

// InspectBeside is Inspect for a directory beside which there are custom resources:
// it may have no document, and "" is no directory.
func InspectBeside(dir string) (*Config, diagnostic.List) {
	if dir == "" {
		t := tree{limits: defaultLimits(), mayBeEmpty: true}
		t.seal()
		return t.decode()
	}
	t := readStable(dir)
	t.mayBeEmpty = true
	return t.decode()
}

// decode turns what was read into specs. It depends on nothing but t.
func (t tree) decode() (*Config, diagnostic.List) {
	d := newDecoder(&t)
	d.found = append(d.found, t.found...)
	d.files()
	c := d.config
	authorizer, found := rbac.New(&d.rbac)
	d.warnings = append(d.warnings, found...)
	if c.Documents == 0 && len(d.found) == 0 && !t.mayBeEmpty {
		c.Unread.All = true
		d.found = append(d.found, diagnostic.Diagnostic{
			Severity: diagnostic.Error,
			Source:   t.dir,
			Message:  "the directory has no documents",
			Hint:     "add files that end in .yaml, .yml or .json, also in subdirectories",
		})
	}
	d.staticKeys()
	d.found.Sort()
	c.Warnings = slices.Concat(d.warnings, d.foreignPolicies(), c.compiledTwice())
	c.Warnings.Sort()
	c.Context = d.context
	c.provide(newObjects(d.context))
	c.Policy.Authorizer, c.Policy.Now = authorizer, time.Now
	c.Authn.Random, c.Authn.Now = rand.Reader, time.Now
	for i := range c.Directories {
		c.Authn.Directories = append(c.Authn.Directories, c.Directories[i].NamedDirectory)
	}
	return c, append(d.found, c.Warnings...)
}

// InspectFile is Inspect for one file, such as the configuration that a recording holds. A document
// may name no other file. The file may have no document, as that of a server without any, but a file of
// 0 bytes is damaged: it begins with a comment.
func InspectFile(path string) (*Config, diagnostic.List) {
	data, err := readFile(path, defaultLimits())
	if err != nil {
		return nil, diagnostic.List{{Severity: diagnostic.Error, Source: path, Message: "cannot be read: " + reason(err)}}
	}
	return InspectText(path, data)
}

// InspectText is InspectFile for the content of a file of this path.
func InspectText(path string, data []byte) (*Config, diagnostic.List) {
	t := tree{dir: filepath.Dir(path), limits: defaultLimits(), files: []file{{path: filepath.Base(path), data: data}}, mayBeEmpty: len(data) > 0}
	if len(data) > t.limits.fileBytes {
		return nil, diagnostic.List{{Severity: diagnostic.Error, Source: path, Message: fmt.Sprintf("is larger than %d MiB", t.limits.fileBytes>>20)}}
	}
	t.seal()
	return t.decode()
}
