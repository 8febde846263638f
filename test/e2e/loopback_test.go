package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// The way for one machine: a server with a certificate of its own making, registered by loopback URL, to which the API
// server speaks HTTP/2.
func TestSelfSignedByLoopbackURL(t *testing.T) {
	w := sharedWorld(t)
	const config = "testdata/loopback"
	certs := t.TempDir()
	server, err := w.serve(t.Context(), "loopback", config,
		"--listen", "127.0.0.1:0", "--self-signed", "127.0.0.1", "--self-signed-dir", certs)
	must(t, err)
	documents, err := gatehouse.Run(t.Context(), "manifests", "--name", "loopback", "--config", config,
		"--url", "https://"+server.Reviews.String(), "--ca-file", filepath.Join(certs, "ca.crt"))
	must(t, err)
	must(t, w.apply(t.Context(), documents))
	pods := w.Client().CoreV1().Pods("loopback")
	mine := labelled("loopback", "true")
	t.Cleanup(func() {
		w.unregister(t, "loopback", func(ctx context.Context) error {
			created, err := pods.Create(ctx, pod("refused", mine), dryRun)
			if err == nil && len(created.Spec.Containers) != 1 {
				err = errors.New("a pod is injected")
			}
			return err
		})
	})

	support.Eventually(t, "the registration", func() error {
		created, err := pods.Create(t.Context(), pod("p", mine, asking), dryRun)
		if err == nil && len(created.Spec.Containers) != 2 {
			err = fmt.Errorf("the pod has the containers %v", created.Spec.Containers)
		}
		if err != nil {
			return err
		}
		_, err = pods.Create(t.Context(), pod("refused", mine), dryRun)
		return refusal(err, 422, "refused by loopback")
	})
	for _, edits := range [][]func(*corev1.Pod){nil, {mine, saying("false")}} {
		created, err := pods.Create(t.Context(), pod("p", edits...), dryRun)
		must(t, err)
		if len(created.Spec.Containers) != 1 {
			t.Errorf("a pod that is not to be injected has the containers %v", created.Spec.Containers)
		}
	}
}
