package install

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// TestProbeGrants: a Grant that the policy must refuse is sent as a dry run, and each way to refuse it is told apart.
func TestProbeGrants(t *testing.T) {
	t.Parallel()
	grants := schema.GroupResource{Group: "gatehouse.dev", Resource: "grants"}
	refused := apierrors.NewForbidden(grants, "gatehouse-probe-1", errors.New(`ValidatingAdmissionPolicy 'gatehouse-grants' with binding 'gatehouse-grants' denied request: spec.grantedBy must be your own user name, "jane"`))
	for name, c := range map[string]struct {
		// answers are those of the API servers behind one address, in turn.
		answers []error
		code    int
		says    string
		// silent is true if the check says nothing beside others.
		silent bool
	}{
		"refused":                {[]error{refused}, 0, "https://a: checks who grants\n", false},
		"created":                {[]error{nil}, 1, "the API server does not check who grants: as a dry run", false},
		"created by one of four": {[]error{refused, refused, refused, nil}, 1, "the API server does not check who grants: as a dry run", false},
		"no Grants":              {[]error{apierrors.NewNotFound(grants, "")}, 2, "has no custom resources of the kind Grant", true},
		"no right":               {[]error{apierrors.NewForbidden(grants, "", errors.New(`User "jane" cannot create resource "grants" in API group "gatehouse.dev" at the cluster scope`))}, 2, "you need the right to create grants.gatehouse.dev", false},
		"another policy":         {[]error{apierrors.NewForbidden(grants, "", errors.New("ValidatingAdmissionPolicy 'other' denied request: no"))}, 2, "cannot find out whether the API server checks who grants", false},
		"created, but for one":   {[]error{errors.New("boom"), nil}, 1, "the API server does not check who grants", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
			client.PrependReactor("create", "grants", func(action clienttesting.Action) (bool, runtime.Object, error) {
				create := action.(clienttesting.CreateActionImpl)
				if options := create.GetCreateOptions(); len(options.DryRun) != 1 || options.DryRun[0] != "All" {
					t.Errorf("it is no dry run: %+v", options)
				}
				n++
				return true, create.GetObject(), c.answers[(n-1)%len(c.answers)]
			})
			f := &probeFlags{installFlags: installFlags{timeout: time.Minute}}
			var out, remarks bytes.Buffer
			err := f.runGrants(t.Context(), client, "https://a", cli.Streams{Out: &out, Err: &remarks})
			if said := out.String() + errorText(err); codeOf(err) != c.code || !strings.Contains(said, c.says) {
				t.Errorf("it ends with %d, %q, want %d, %q", codeOf(err), said, c.code, c.says)
			}
			n = 0
			out.Reset()
			err = f.warnGrants(t.Context(), client, "https://a", cli.Streams{Out: &out, Err: &remarks})
			said, code := out.String()+remarks.String()+errorText(err), c.code
			if code == 2 { // a warning
				code = 0
			}
			if codeOf(err) != code || (said == "") != c.silent || !c.silent && !strings.Contains(said, c.says) {
				t.Errorf("beside others it ends with %d, %q, want %d, %q", codeOf(err), said, code, c.says)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func codeOf(err error) int {
	if err == nil {
		return 0
	}
	return cli.WorstCode(err)
}
