package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// exceptions let pass what they are about, where they may be written, and leave a trace.
func (b *beyond) exceptions(t *testing.T) {
	quota := map[string]string{"beyond": "quota"}
	generated := configMap("", quota, "a=1", "b=2")
	generated.GenerateName = "legacy-"
	for _, c := range []struct {
		name   string
		object *corev1.ConfigMap
		wants  string // "" is admitted
	}{
		{"excepted", configMap("legacy-1", quota, "a=1", "b=2"), ""},
		{"generated name", generated, ""},
		{"another rule", configMap("legacy-2", quota, "a=1", "secret=x"), "AdmissionPolicy 'quota' denied request: no secrets"},
		{"another name", configMap("new-1", quota, "a=1", "b=2"), "AdmissionPolicy 'quota' denied request: at most 1"},
		{"by an exception where none may be", configMap("own-1", quota, "a=1", "b=2"), "AdmissionPolicy 'quota' denied request: at most 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := b.createConfigMap(c.object, dryRun)
			if got := admittedOrNot(err); got != c.wants || got == "" && err != nil {
				t.Errorf("got %v, want %q", err, c.wants)
			}
		})
	}
	must(t, b.createConfigMap(configMap("legacy-real", quota, "a=1", "b=2"), metav1.CreateOptions{}))
	b.noted(t, "create", "legacy-real", failing+"excepted-by", is("gatehouse-system/quota-legacy:quota/validations[0]"))
	if err := refusal(b.createConfigMap(configMap("new-real", quota, "a=1", "secret=2"), metav1.CreateOptions{}), 422, "2 violations"); err != nil {
		t.Error(err)
	}
	b.noted(t, "create", "new-real", failing+"denied-by", is("quota"))
	log, err := os.ReadFile(b.server.Log())
	must(t, err)
	if !strings.Contains(string(log), `exceptions in \"beyond\" do nothing`) {
		t.Error("nobody is told that an exception does nothing")
	}
}

// expiry ends an exception at its second.
func (b *beyond) expiry(t *testing.T) {
	create := func() error {
		return b.createConfigMap(configMap("expiring-1", map[string]string{"beyond": "quota"}, "a=1", "b=2"), dryRun)
	}
	if err := refusal(create(), 422, "at most 1"); err != nil {
		t.Fatal(err)
	}
	// A busy machine may take longer than that to read the exception: then another one is given more time.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for lasts := 3 * time.Second; lasts < deadline; lasts *= 2 {
		expires := time.Now().Add(lasts).Truncate(time.Second)
		must(t, os.WriteFile(filepath.Join(b.config, "expiring.yaml"), []byte(beyondException(
			"gatehouse-system", "expiring", "expiring-*", "", fmt.Sprintf("expiresAt: %q", expires.UTC().Format(time.RFC3339)))), 0o600))
		inForce := false
		for {
			asked := time.Now()
			err := create()
			answered := time.Now()
			switch {
			case err == nil && !asked.Before(expires):
				t.Fatalf("asked %s after its end the exception is in force", asked.Sub(expires))
			case err != nil && inForce && answered.Before(expires):
				t.Fatalf("%s before its end the exception is not in force any more: %v", expires.Sub(answered), err)
			case err != nil && refusal(err, 422, "at most 1") != nil:
				t.Fatal(err)
			}
			inForce = inForce || err == nil
			if !asked.Before(expires) {
				break
			}
			<-tick.C // others want the processor, too
		}
		if inForce {
			return
		}
	}
	t.Fatal("the exception has never been in force")
}
