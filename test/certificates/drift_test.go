package certificates

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	// drifting is how long somebody overwrites the bundle, and pace how often.
	drifting = 10 * time.Second
	pace     = 200 * time.Millisecond
	// restoring is how long a bundle may be wrong, but for one time in twenty, on a machine that has other things to do.
	restoring = time.Second
)

// A tool that overwrites the bundle five times a second is put right each time, within a second. Calls do fail in
// between, because an API server believes what it is told; when the tool stops, they do no more.
func TestBundleIsOverwritten(t *testing.T) {
	h := newHook(t)
	rs := h.replicate(t, 3)
	want := bundleOf(h.inPhase(t, rotation.Stable).Current)
	foreign := bundleOf(newCA(t, "foreign", time.Now().AddDate(0, 0, -1)))
	overwrite := []func(context.Context) error{
		func(ctx context.Context) error { return h.setBundle(ctx, nil) },
		func(ctx context.Context) error { return h.setBundle(ctx, []byte("\n")) }, // what charts put there for cert-manager
		func(ctx context.Context) error { return h.setBundle(ctx, foreign) },
		func(ctx context.Context) error { return h.setBundle(ctx, append(bytes.Clone(want), foreign...)) },
		func(ctx context.Context) error { return h.setBundle(ctx, want[:len(want)/2]) },
		h.replaceRegistration,
	}
	caller := h.caller(t)
	eventually(t, "a first call", func() error { return caller.call(t.Context()) })
	var took []time.Duration
	failed := 0
	call := func() {
		if caller.call(t.Context()) != nil {
			failed++
		}
	}
	for end := time.Now().Add(drifting); time.Now().Before(end); {
		next := time.After(pace)
		must(t, overwrite[len(took)%len(overwrite)](t.Context()))
		call()
		restored, err := within(healing, func() error {
			bundle, err := h.bundle(t.Context())
			if err == nil && !bytes.Equal(bundle, want) {
				err = fmt.Errorf("the bundle was not restored: %q", bundle)
			}
			return err
		})
		must(t, err)
		took = append(took, restored)
		call()
		<-next
	}
	slices.Sort(took)
	if slow := took[len(took)*19/20]; slow > restoring {
		t.Errorf("it took %s to restore the bundle, or more, want %s at most", slow, restoring)
	}
	t.Logf("overwritten %d times, restored after %s, %s at most; %d of %d calls failed meanwhile",
		len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), failed, 2*len(took))
	if counted := rs.overwritten(); counted == 0 {
		t.Error("no replica has counted that somebody overwrites the bundle")
	}
	h.load(t, rs.work).noneFailed(t, enough/10)
}

// A tool that applies the registration over and over, without a bundle, takes nothing away, and nobody writes anything.
func TestBundleIsLeftOut(t *testing.T) {
	h := newHook(t)
	rs := h.replicate(t, 3)
	manifest, err := json.Marshal(h.registration())
	must(t, err)
	apply := func() string {
		t.Helper()
		applied, err := h.configurations().Patch(t.Context(), h.name, types.ApplyPatchType, manifest,
			metav1.PatchOptions{FieldManager: "gitops", Force: new(true)})
		must(t, err)
		return applied.ResourceVersion
	}
	l := h.load(t, rs.work)
	version := apply()
	for end := time.Now().Add(2 * lag); time.Now().Before(end); {
		l.last(t, pace)
		if now := apply(); now != version {
			t.Fatalf("the registration was changed, from version %s to %s", version, now)
		}
	}
	l.noneFailed(t, enough/10)
}

// replaceRegistration is what a tool does that puts what it has in the place of what there is.
func (h *hook) replaceRegistration(ctx context.Context) error {
	configurations := h.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	found, err := configurations.Get(ctx, h.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	mine := h.registration()
	mine.ResourceVersion = found.ResourceVersion
	_, err = configurations.Update(ctx, mine, metav1.UpdateOptions{FieldManager: "gitops"})
	return err
}

func (rs replicas) overwritten() int64 {
	var n int64
	for _, r := range rs {
		n += r.publisher.Stats().Overwritten
	}
	return n
}
