package registration

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
)

// Whoever has the right to patch webhook configurations is held to caBundle by the
// guard, and has no right that would change the guard.
func TestGuardFollowsTheRight(t *testing.T) {
	t.Parallel()
	for name, o := range withRights() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var guarded, bound string
			patches := false
			subjects := map[string]bool{}
			look := func(rules []rbacv1.PolicyRule) {
				for _, r := range rules {
					if !slices.Contains(r.APIGroups, admissionregistrationv1.GroupName) {
						continue
					}
					if slices.Equal(r.Resources, []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}) && slices.Equal(r.Verbs, []string{"list", "watch"}) {
						continue // who may grant is read, and what was compiled
					}
					if want := []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}; !slices.Equal(r.Resources, want) || len(r.ResourceNames) != 1 {
						t.Errorf("the right is about %q of %q", r.Resources, r.ResourceNames)
					}
					patches = patches || slices.Contains(r.Verbs, "patch")
				}
			}
			for _, d := range decoded(t, admissionOf(t, o).Documents) {
				switch object := d.object.(type) {
				case *rbacv1.ClusterRole:
					look(object.Rules)
				case *rbacv1.ClusterRoleBinding:
					subjects["system:serviceaccount:"+object.Subjects[0].Namespace+":"+object.Subjects[0].Name] = true
				case *admissionregistrationv1.ValidatingAdmissionPolicy:
					if object.Name == install.GrantPolicy {
						continue
					}
					guarded = object.Spec.MatchConditions[0].Expression
					if object.Name != o.Name+"-registration" || *object.Spec.FailurePolicy != admissionregistrationv1.Fail {
						t.Errorf("the guard is %+v", object)
					}
				case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
					if object.Name == install.GrantPolicy {
						continue
					}
					bound = object.Spec.PolicyName
					if want := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}; !slices.Equal(object.Spec.ValidationActions, want) {
						t.Errorf("it does %q", object.Spec.ValidationActions)
					}
				}
			}
			if (guarded != "") != patches || (bound == o.Name+"-registration") != patches {
				t.Errorf("the right to patch is granted: %t; the guard is for %q, its binding for %q", patches, guarded, bound)
			}
			for subject := range subjects {
				if patches && !strings.HasSuffix(guarded, ` == "`+subject+`"`) {
					t.Errorf("the guard is for %s, and the rights are those of %s", guarded, subject)
				}
			}
		})
	}
}
