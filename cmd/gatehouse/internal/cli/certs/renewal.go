package certs

import (
	"context"
	"fmt"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// renewalRemarks returns what cert-manager ignores without an error: annotations beside the one that its cainjector takes, and fields
// of the Certificate that is named there.
func renewalRemarks(ctx context.Context, objects dynamic.Interface, c *cabundle.Status) []string {
	var remarks []string
	if len(c.IgnoredInjectors) > 0 {
		remarks = append(remarks, "cert-manager's cainjector takes the annotation "+c.Injector+", and ignores "+strings.Join(c.IgnoredInjectors, " and "))
	}
	namespace, name, named := strings.Cut(c.InjectFrom, "/")
	if c.Injector != certmanagerv1.WantInjectAnnotation || !named {
		return remarks
	}
	var certificate certmanagerv1.Certificate
	live, err := objects.Resource(certmanagerv1.SchemeGroupVersion.WithResource("certificates")).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &certificate)
	}
	if err != nil {
		return append(remarks, "how the Certificate "+c.InjectFrom+" is renewed cannot be read: "+cli.OneLine(err.Error()))
	}
	if remark := renewalRemark(&certificate); remark != "" {
		remarks = append(remarks, "the Certificate "+c.InjectFrom+" "+remark)
	}
	return remarks
}

// renewalRemark returns what of a Certificate's renewal is not as it is written, as of cert-manager 1.21, "" for nothing.
func renewalRemark(c *certmanagerv1.Certificate) string {
	if c.Spec.Renewal != nil && c.Spec.Renewal.Policy == certmanagerv1.CertificateRenewalPolicyDisabled {
		return "is not renewed: its renewal.policy is Disabled"
	}
	life := certmanagerv1.DefaultCertificateDuration
	if c.Spec.Duration != nil {
		life = c.Spec.Duration.Duration
	}
	if from, until := c.Status.NotBefore, c.Status.NotAfter; from != nil && until != nil {
		life = until.Sub(from.Time) // the issuer may have signed for less
	}
	if before := c.Spec.RenewBefore; before != nil && before.Duration >= life {
		return fmt.Sprintf("has a renewBefore of %s, which cert-manager ignores because the certificate lasts %s: it is renewed after two thirds of that",
			cli.FormatDuration(before.Duration), cli.FormatDuration(life.Round(time.Second)))
	}
	return ""
}
