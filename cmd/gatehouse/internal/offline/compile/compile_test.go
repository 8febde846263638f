package compile

import (
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

const library = "../../../../../manifests/policies"

// compiled compiles a directory.
func compiled(t testing.TB, dir string) (*config.Config, *Output) {
	t.Helper()
	c, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Compile(c, Options{Kubernetes: "1.36", Now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	return c, out
}

// TestLibrary prints how many rules of the library are native, and wants most of them to be.
func TestLibrary(t *testing.T) {
	t.Parallel()
	_, out := compiled(t, library)
	counts := map[Status]int{}
	for _, i := range out.Items {
		counts[i.Status]++
		t.Log(i.Status, i.Kind, i.Name, i.Rule, i.Reasons, i.Notes)
	}
	for _, d := range out.Documents {
		text, _ := yaml.Marshal(d.Object())
		t.Log(len(text), d.Meta().Name)
	}
	t.Logf("%v: %d %% native", counts, 100*counts[Native]/len(out.Items))
}
