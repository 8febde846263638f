package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const (
	// documentsWebhook is the name of the webhook that checks custom resources.
	documentsWebhook = "documents.validate.gatehouse.dev"
	// documentsTimeout is its timeoutSeconds. A policy is compiled for it, of which
	// others need not wait.
	documentsTimeout = 10
)

// documents is the webhook that refuses a custom resource that could not be used,
// with its diagnostics.
//
// It fails open: what gets past it while Gatehouse is down is reported by the
// conditions of the object, and an installation in one command, which creates
// objects before Gatehouse runs, must not be refused. It leaves out no namespace,
// because exceptions are in those of Gatehouse and of the system too. Policies do
// not see these objects, so that none keeps another from being repaired. What is
// done in an emergency is checked like anything else: a mistake is likelier then,
// and without an answer it gets through all the same.
func (o *Options) documents() admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    documentsWebhook,
		ClientConfig:            o.clientConfig(webhooks.ValidatePath),
		FailurePolicy:           new(admissionregistrationv1.Ignore),
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		NamespaceSelector:       &metav1.LabelSelector{},
		ObjectSelector:          &metav1.LabelSelector{},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(int32(documentsTimeout)),
		AdmissionReviewVersions: []string{"v1"},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups:   []string{v1alpha1.GroupVersion.Group},
				APIVersions: []string{v1alpha1.GroupVersion.Version},
				// Without subresources: Gatehouse itself writes the status.
				Resources: install.CustomResources(),
				Scope:     new(admissionregistrationv1.AllScopes),
			},
		}},
		MatchConditions: []admissionregistrationv1.MatchCondition{notTheAPIServer()},
	}
}
