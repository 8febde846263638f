package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
)

// recorder keeps the warnings that a client is given.
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

// warned returns a client of the administrator and the warnings that it has been given.
func (w *world) warned(t *testing.T) (kubernetes.Interface, func() []string) {
	t.Helper()
	var r recorder
	config := w.Config()
	config.WarningHandlerWithContext = &r
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client, r.list
}

// audited returns the annotations of the audit log's event about the creation of an object, not in a dry run.
func (w *world) audited(resource, namespace, name string) (map[string]string, error) {
	log, err := os.ReadFile(w.audit)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		err := json.Unmarshal(lines.Bytes(), &event)
		if err != nil {
			return nil, fmt.Errorf("the audit log: %w", err) // the last line may be in the making
		}
		about := event.ObjectRef
		if about == nil || event.Verb != "create" || about.Resource != resource || about.Namespace != namespace || about.Name != name {
			continue
		}
		if !bytes.Contains([]byte(event.RequestURI), []byte("dryRun=")) {
			return event.Annotations, nil
		}
	}
	return nil, fmt.Errorf("the audit log holds no creation of %s %s/%s", resource, namespace, name)
}
