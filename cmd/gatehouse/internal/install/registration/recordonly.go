package registration

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks"
)

const (
	// recordWebhook is the name of the webhook whose requests are only recorded.
	recordWebhook = "record.validate.gatehouse.dev"
	// recordTimeout is its timeoutSeconds, the least that there is: nobody needs the answer.
	recordTimeout = 1
	// shares is into how many equal shares the objects of a cluster are divided: the first four
	// digits of a UID.
	shares = 1 << 16
)

// recordOnly is the webhook for requests that no policy needs and that a recording shall hold.
// It is nil if nothing is left to be sent. It returns remarks on what is not sent by it.
//
// It fails open at once, and sends each object or never, as the share says. What the webhooks of policies
// receive is recorded already and not sent again, even where one of their match conditions
// excludes it.
func (o *Options) recordOnly(policies ruleSets) (*admissionregistrationv1.ValidatingWebhook, []string, error) {
	var wanted, covered atomSet
	var notes []string
	for _, rule := range o.RecordOnly {
		for _, resource := range wanted.add(rule) {
			notes = append(notes, fmt.Sprintf("%q is never sent to Gatehouse", resource))
		}
	}
	for _, rule := range slices.Concat(policies.fail, policies.ignore) {
		covered.add(rule)
	}
	if wanted.full || covered.full {
		return nil, nil, errTooManyAtoms()
	}
	sent := sender{any: covered}
	for a := range wanted.atoms {
		if sent.sends(a) {
			notes = append(notes, fmt.Sprintf("%q is sent for its policies, and recorded without --record-only", a.kubectlName()))
			delete(wanted.atoms, a)
		}
	}
	slices.Sort(notes)
	notes = slices.Compact(notes)
	if len(wanted.atoms) == 0 {
		return nil, notes, nil
	}
	conditions := ownConditions()
	if wanted.sendsSecretsByWildcard() {
		conditions = append(conditions, excludedResource{"secrets", []string{""}, "secrets"}.condition())
		notes = append(notes, `Secrets are not recorded for a wildcard (hint: name them, --record-only secrets)`)
	}
	overlap := map[atom]bool{}
	for a := range covered.atoms {
		if wanted.overlaps(a) {
			overlap[a] = true
		}
	}
	if len(overlap) > 0 {
		expression := guard(overlap)
		if len(expression) > maxExpressionBytes {
			return nil, nil, errors.New("--record-only: the policies match too many resources to leave them out of a wildcard (hint: name the resources to record)")
		}
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: "not-for-policies", Expression: "!(" + expression + ")"})
	}
	if share := int(math.Round(o.RecordShare * shares)); share < shares {
		conditions = append(conditions, isInShare(max(share, 1)))
	}
	return &admissionregistrationv1.ValidatingWebhook{
		Name:                    recordWebhook,
		ClientConfig:            o.clientConfig(webhooks.ValidatePath),
		FailurePolicy:           new(admissionregistrationv1.Ignore),
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		NamespaceSelector:       o.namespaceSelector(),
		ObjectSelector:          &metav1.LabelSelector{},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(int32(recordTimeout)),
		AdmissionReviewVersions: []string{"v1"},
		Rules:                   wanted.rules(),
		MatchConditions:         conditions,
	}, notes, nil
}

// isInShare is true for the first share of all objects, of shares. An object belongs to it by its
// UID, which the API server draws at random before it calls validating webhooks: all requests about
// an object are sent, or none. A match condition cannot see the UID of the request. What has no
// UID is sent, such as the options of a connection. The condition cannot fail itself.
func isInShare(share int) admissionregistrationv1.MatchCondition {
	isBelow := func(object string) string {
		return strings.NewReplacer("OBJECT", object, "LIMIT", fmt.Sprintf("%04x", share)).Replace(
			`OBJECT == null || !has(OBJECT.metadata) || !has(OBJECT.metadata.uid) || OBJECT.metadata.uid < "LIMIT"`)
	}
	return admissionregistrationv1.MatchCondition{
		Name:       "sample",
		Expression: `request.operation == "DELETE" ? (` + isBelow("oldObject") + `) : (` + isBelow("object") + `)`,
	}
}

// overlaps reports whether a request may match a and one of the atoms.
func (s *atomSet) overlaps(a atom) bool {
	for b := range s.atoms {
		if a.overlaps(b) {
			return true
		}
	}
	return false
}

// overlaps reports whether a request may match both, in any version.
func (a atom) overlaps(b atom) bool {
	isEither := func(a, b string) bool { return a == b || a == all || b == all }
	name, sub, _ := strings.Cut(a.resource, "/")
	otherName, otherSub, _ := strings.Cut(b.resource, "/")
	// "pods/*" is pods too.
	return isEither(a.group, b.group) && isEither(a.scope, b.scope) && isEither(a.operation, b.operation) &&
		isEither(name, otherName) && isEither(sub, otherSub)
}

// sendsSecretsByWildcard reports whether Secrets are among the atoms without being named.
func (s *atomSet) sendsSecretsByWildcard() bool {
	sends := false
	for a := range s.atoms {
		name, _, _ := strings.Cut(a.resource, "/")
		if name == "secrets" && a.group == "" {
			return false
		}
		sends = sends || a.overlaps(atom{group: "", resource: "secrets", scope: all, operation: all})
	}
	return sends
}
