package certs

import (
	"context"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
)

// issuedView is an object of cert-manager that the serving certificate depends on.
type issuedView struct {
	Object string `json:"object"`
	// Problem is why it is not ready, "" if it is, and Unknown reports whether it could not be read.
	Problem  string     `json:"problem,omitempty"`
	Unknown  bool       `json:"unknown,omitempty"`
	NotAfter *time.Time `json:"notAfter,omitempty"`
	Renewal  *time.Time `json:"renewal,omitempty"`
}

// readIssued reads the Certificates that the configurations name for cert-manager's cainjector, and their issuers.
func readIssued(ctx context.Context, objects dynamic.Interface, configurations []registration.Status) []issuedView {
	var list []issuedView
	read := map[string]bool{}
	for i := range configurations {
		c := &configurations[i]
		namespace, name, named := strings.Cut(c.InjectFrom, "/")
		if c.Injector == certmanagerv1.WantInjectAnnotation && named && !read[c.InjectFrom] {
			read[c.InjectFrom] = true
			list = append(list, readCertificate(ctx, objects, namespace, name)...)
		}
	}
	return list
}

// readCertificate reads a Certificate and its issuer.
func readCertificate(ctx context.Context, objects dynamic.Interface, namespace, name string) []issuedView {
	var c certmanagerv1.Certificate
	v := issuedView{Object: "Certificate " + namespace + "/" + name}
	if !v.read(ctx, objects, "certificates", namespace, name, &c) {
		return []issuedView{v}
	}
	v.Problem = "cert-manager has not processed it (hint: check that cert-manager's controller runs)"
	for i := range c.Status.Conditions {
		if one := &c.Status.Conditions[i]; one.Type == certmanagerv1.CertificateConditionReady {
			v.Problem = notReady(one.Status, one.Message)
		}
	}
	if t := c.Status.NotAfter; t != nil {
		v.NotAfter = someTime(t.Time)
	}
	if t := c.Status.RenewalTime; t != nil {
		v.Renewal = someTime(t.Time)
	}
	ref := c.Spec.IssuerRef
	if ref.Group != "" && ref.Group != certmanagerv1.SchemeGroupVersion.Group {
		return []issuedView{v} // an issuer of others
	}
	issuer, resource := issuedView{Object: "Issuer " + namespace + "/" + ref.Name}, "issuers"
	if ref.Kind == certmanagerv1.ClusterIssuerKind {
		issuer, resource, namespace = issuedView{Object: "ClusterIssuer " + ref.Name}, "clusterissuers", ""
	}
	var i certmanagerv1.Issuer // the other kind has the same fields
	if issuer.read(ctx, objects, resource, namespace, ref.Name, &i) {
		issuer.Problem = "cert-manager has not processed it"
		for j := range i.Status.Conditions {
			if one := &i.Status.Conditions[j]; one.Type == certmanagerv1.IssuerConditionReady {
				issuer.Problem = notReady(one.Status, one.Message)
			}
		}
	}
	return []issuedView{v, issuer}
}

// read reads an object, and reports whether it could.
func (v *issuedView) read(ctx context.Context, objects dynamic.Interface, resource, namespace, name string, into any) bool {
	live, err := objects.Resource(certmanagerv1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, into)
	}
	if err != nil {
		v.Problem, v.Unknown = "cannot be read: "+cli.OneLine(err.Error()), true
	}
	return err == nil
}

func notReady(status cmmeta.ConditionStatus, message string) string {
	if status == cmmeta.ConditionTrue {
		return ""
	}
	return "is not ready: " + cli.OneLine(message)
}
