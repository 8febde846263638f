package registration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
)

// TestGrantPolicyHasItsName: an upgrade that changes the spec of the policy or its binding in place ends all Grants of a cluster until both
// are deleted and installed again, because they count only under specs that never changed. Another spec needs another name.
func TestGrantPolicyHasItsName(t *testing.T) {
	t.Parallel()
	const name, sum = "gatehouse-grants", "9c6d8a2bd995abd636350234e556576ff814ac71204e54869c4f9ec0337bb1e8"
	policy, binding, err := GrantPolicy()
	if err != nil {
		t.Fatal(err)
	}
	specs, err := json.Marshal([]any{policy.Spec, binding.Spec})
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(specs)
	if got := hex.EncodeToString(digest[:]); got != sum || install.GrantPolicy != name || policy.Name != name || binding.Name != name {
		t.Errorf("the policy and the binding %q have the sum %s, and those of the name %q had %s: change install.GrantPolicy with each spec, then write both here", install.GrantPolicy, got, name, sum)
	}
}
