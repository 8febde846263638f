package offline

import (
	"context"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// lintRegistration returns a warning for each policy that matches what the webhook configuration of a cluster does not send.
// Without the right to read it, or in a registration that Gatehouse manages, there are none.
func lintRegistration(ctx context.Context, access *rest.Config, c *config.Config) diagnostic.List {
	client, err := certs.NewClient(access)
	if err != nil {
		return nil //nolint:nilerr // what cannot be read is not compared, here and below
	}
	found, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, install.DefaultRegistration, metav1.GetOptions{})
	if err != nil || found.Annotations[registration.ExcludedNamespaces] != "" {
		return nil //nolint:nilerr // see above
	}
	sent, workloads := registration.SentBy([]admissionregistrationv1.ValidatingWebhookConfiguration{*found}), workload.FromAPI(c.Workloads())
	var list diagnostic.List
	for i := range c.Policy.AdmissionPolicies {
		p := &c.Policy.AdmissionPolicies[i]
		for _, remark := range registration.NotSent(&p.AdmissionPolicy, workloads, sent) {
			list = append(list, diagnostic.Diagnostic{
				Severity: diagnostic.Warning, Source: p.Source, Object: "AdmissionPolicy/" + p.Name, Message: strings.ReplaceAll(remark, "\n", " "),
			})
		}
	}
	return list
}
