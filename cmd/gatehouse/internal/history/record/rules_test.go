package record_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
)

func TestReadRules(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: gatehouse.dev/v1alpha1\nkind: RecordingConfiguration\n"
	for _, tt := range []struct{ name, text, want string }{
		{"all", head, ""},
		{"everything set", head + "sampling: {default: 0.01}\n" +
			"redaction: {paths: ['spec.containers[*].args'], annotations: ['*.internal/*']}\n", ""},
		{"unknown field", head + "samples: {}\n", `samples: unknown field`},
		{"share", head + "sampling: {default: 2}\n", "sampling.default: 2 must be from 0 to 1"},
		{"negative share", head + "sampling: {default: -1}\n", "sampling.default: -1 must be from 0 to 1"},
		{"path of a label", head + "redaction: {paths: [metadata.labels]}\n", "metadata cannot be redacted"},
		{"another kind", "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfiguration\n", "must hold one document, a RecordingConfiguration"},
		{"two documents", head + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n", "must hold one document"},
		{"empty", "", "must hold one document"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "recording.yaml")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			rules, found := record.ReadRules(file)
			err := found.Err()
			if tt.want == "" && (err != nil || rules.Redactor == nil) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
