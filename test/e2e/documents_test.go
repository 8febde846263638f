package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// The API server refuses to store a ValidatingAdmissionPolicy or binding exactly if Gatehouse refuses to use it, so that a
// document can be moved from one to the other.
func TestUpstreamDocuments(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	type documents struct{ Policy, Binding json.RawMessage }
	var (
		base  documents
		table []struct {
			Name string
			documents
		}
	)
	readTable(t, "upstream/documents-base.yaml", &base)
	readTable(t, "upstream/documents.yaml", &table)
	// patched writes the document to a directory and returns it as an object too.
	patched := func(t *testing.T, path string, base, patch json.RawMessage, into any) {
		t.Helper()
		if patch == nil {
			patch = json.RawMessage("{}")
		}
		document, err := jsonpatch.MergePatch(base, patch)
		must(t, err)
		must(t, json.Unmarshal(document, into))
		must(t, os.WriteFile(path, document, 0o600))
	}
	for _, row := range table {
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			var (
				dir     = t.TempDir()
				policy  admissionregistrationv1.ValidatingAdmissionPolicy
				binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
			)
			patched(t, filepath.Join(dir, "policy.json"), base.Policy, row.Policy, &policy)
			patched(t, filepath.Join(dir, "binding.json"), base.Binding, row.Binding, &binding)
			_, policyErr := w.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &policy, dryRun)
			_, bindingErr := w.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), &binding, dryRun)
			native := errors.Join(policyErr, bindingErr)
			diagnostics, err := gatehouse.Run(t.Context(), "lint", "--config", dir)
			if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
				t.Fatal(err)
			}
			if (native != nil) != (err != nil) {
				t.Errorf("the API server says: %v\ngatehouse lint says: %v\n%s", native, err, diagnostics)
			}
		})
	}
}
