package config_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// directories returns the directories of the examples and of the policy library that are configurations. Some examples have
// more than one.
func directories(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, root := range []string{"../../manifests/examples", "../../manifests/policies"} {
		entries, err := os.ReadDir(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			parts, err := filepath.Glob(filepath.Join(root, entry.Name(), "c*")) // config, and candidate
			if err != nil {
				t.Fatal(err)
			}
			parts = slices.DeleteFunc(parts, func(path string) bool { return filepath.Ext(path) != "" })
			switch {
			case len(parts) > 0:
				all = append(all, parts...)
			case entry.IsDir():
				all = append(all, filepath.Join(root, entry.Name()))
			}
		}
	}
	return all
}

// withoutSources clears what of the parts of a configuration says where it was read.
func withoutSources(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // others hold no documents
	case reflect.Slice:
		for i := range v.Len() {
			withoutSources(v.Index(i))
		}
	case reflect.Struct:
		if source := v.FieldByName("Source"); source.IsValid() && source.Kind() == reflect.String && source.CanSet() {
			source.SetString("")
		}
		if kind := v.FieldByName("TypeMeta"); kind.IsValid() {
			kind.SetZero()
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Anonymous && f.Type.Kind() == reflect.Struct {
				withoutSources(v.Field(i))
			}
		}
	}
}

// TestEncode loads what Encode returns for each example and each policy of the library: it holds
// the same documents, and compiles.
func TestEncode(t *testing.T) {
	t.Parallel()
	for _, dir := range directories(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			c, err := config.Load(dir)
			if err != nil {
				t.Skip(err) // it names files with secrets, that a user makes
			}
			again := encodeAndLoad(t, c)
			for _, part := range []struct {
				name      string
				got, want any
			}{
				{"profiles", &again.Sidecar.Profiles, &c.Sidecar.Profiles},
				{"policies", &again.Policy.Policies, &c.Policy.Policies},
				{"bindings", &again.Policy.Bindings, &c.Policy.Bindings},
				{"admission policies", &again.Policy.AdmissionPolicies, &c.Policy.AdmissionPolicies},
				{"admission bindings", &again.Policy.AdmissionPolicyBindings, &c.Policy.AdmissionPolicyBindings},
				{"exceptions", &again.Policy.Exceptions, &c.Policy.Exceptions},
				{"revocations", &again.Authn.Revocations, &c.Authn.Revocations},
			} {
				withoutSources(reflect.ValueOf(part.got).Elem())
				withoutSources(reflect.ValueOf(part.want).Elem())
				if !reflect.DeepEqual(part.got, part.want) {
					t.Errorf("%s are\n%+v\nwant\n%+v", part.name, part.got, part.want)
				}
			}
			if p := c.Policy.Configuration; p != nil && !reflect.DeepEqual(again.Policy.Configuration.Exceptions, p.Exceptions) {
				t.Errorf("PolicyConfiguration %+v, want %+v", again.Policy.Configuration, p)
			}
			if !reflect.DeepEqual(objects(again.Context), objects(c.Context)) {
				t.Errorf("context %v, want %v", again.Context, c.Context)
			}
			if _, err := webhooks.Compile(webhooks.Spec{Sidecar: again.Sidecar, Policy: again.Policy, Authn: again.Authn}); err != nil {
				t.Errorf("it does not compile: %v", err)
			}
		})
	}
}

func objects(list []*unstructured.Unstructured) []any {
	var all []any
	for _, o := range list {
		all = append(all, o.Object)
	}
	return all
}

// encodeAndLoad returns the configuration that Encode's documents are.
func encodeAndLoad(t *testing.T, c *config.Config) *config.Config {
	t.Helper()
	text, err := c.Encode(func([]byte) []byte {
		return []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"n"}}`)
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := config.Load(write(t, map[string]string{"configuration.yaml": string(text)}))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return again
}

// TestEncodeSecrets plants a secret in each place of a configuration that may have one.
func TestEncodeSecrets(t *testing.T) {
	t.Parallel()
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	files := secrets()
	guide := loginExample
	err := filepath.WalkDir(guide, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".yaml") {
			files[filepath.Base(path)] = readText(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	token := func(name, hash string) string {
		return "apiVersion: gatehouse.dev/v1alpha1\nkind: AccessToken\nmetadata: {name: " + name + "}\nspec: {sha256: " + hash + ", user: {username: ci}, expiresAt: 2030-01-01T00:00:00Z}\n"
	}
	files["tokens.yaml"] = token("ci-one", hash) + "---\n" + token("ci-two", strings.Repeat("ab", 32))
	files["secret.yaml"] = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}\nstringData: {a: hunter2-hunter2}\n"
	c, err := config.Load(write(t, files))
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Encode(func(object []byte) []byte {
		return []byte(strings.ReplaceAll(string(object), "hunter2-hunter2", "redacted"))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, planted := range []string{hash, strings.Repeat("ab", 32), "hunter2", "secrets/", loginKey(), keySet} {
		if strings.Contains(string(text), planted) {
			t.Errorf("%q is in the documents:\n%s", planted, text)
		}
	}
	again := encodeAndLoad(t, c)
	if len(again.Authn.Tokens) != 2 || len(again.Authn.Issuers) != len(c.Authn.Issuers) {
		t.Errorf("%d tokens and %d issuers, want 2 and %d", len(again.Authn.Tokens), len(again.Authn.Issuers), len(c.Authn.Issuers))
	}
	for i := range again.Authn.Issuers {
		if got, want := again.Authn.Issuers[i].Config, c.Authn.Issuers[i].Config; !reflect.DeepEqual(got, want) {
			t.Errorf("issuer %+v, want %+v", got, want)
		}
	}
	if _, err := webhooks.Compile(webhooks.Spec{Authn: again.Authn}); err != nil {
		t.Errorf("it does not compile: %v", err)
	}
}
