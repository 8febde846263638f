package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// recorder keeps the warnings that a client receives.
type recorder struct {
	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (r *recorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warnings = append(r.warnings, text)
}

func (r *recorder) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.warnings)
}

// audited returns the annotations of the audit log's last event about a request, not in a dry run.
func (w *world) audited(verb, resource, namespace, name string) (map[string]string, error) {
	log, err := os.ReadFile(w.audit)
	if err != nil {
		return nil, err
	}
	var found map[string]string
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte(`"name":"`+name+`"`)) || !bytes.HasSuffix(line, []byte("\n")) || bytes.Contains(line, []byte("dryRun=")) {
			continue
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("the audit log: %w", err)
		}
		if o := event.ObjectRef; o != nil && event.Verb == verb && o.Resource == resource && o.Namespace == namespace && o.Name == name {
			found = event.Annotations
		}
	}
	if found == nil {
		return nil, fmt.Errorf("the audit log holds no %s of %s %s/%s", verb, resource, namespace, name)
	}
	return found, nil
}
