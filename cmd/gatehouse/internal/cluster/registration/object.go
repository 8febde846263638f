package registration

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// object is a webhook configuration of either kind. It is immutable.
type object struct {
	target
	// original is what was read, and meta its metadata.
	original runtime.Object
	meta     *metav1.ObjectMeta
	// injector is the annotation by which cert-manager's cainjector writes its bundles,
	// "" without, and injectFrom its value. It ignores the others.
	injector, injectFrom string
	webhooks             []webhook
}

// webhook is one entry of a configuration. Both kinds have these fields.
type webhook struct {
	name string
	// server is the name that the API server calls, which the certificate must have.
	server string
	// caBundle is what is trusted, and bundle what is in it.
	caBundle            string
	bundle              *bundle
	rules               []admissionregistrationv1.RuleWithOperations
	namespaces, objects *metav1.LabelSelector
}

func newObject(found runtime.Object) *object {
	o := &object{original: found}
	add := func(name string, c *admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations, namespaces, objects *metav1.LabelSelector) {
		raw := string(c.CABundle)
		o.webhooks = append(o.webhooks, webhook{name, serverName(c), raw, parseBundle(raw), rules, namespaces, objects})
	}
	switch c := found.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		o.meta, o.target = &c.ObjectMeta, target{Mutating, c.Name}
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			add(w.Name, &w.ClientConfig, w.Rules, w.NamespaceSelector, w.ObjectSelector)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		o.meta, o.target = &c.ObjectMeta, target{Validating, c.Name}
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			add(w.Name, &w.ClientConfig, w.Rules, w.NamespaceSelector, w.ObjectSelector)
		}
	}
	// See https://cert-manager.io/docs/concepts/ca-injector/. Of several, it takes the first in this order.
	for _, name := range []string{certmanagerv1.WantInjectFromSecretAnnotation, certmanagerv1.WantInjectAnnotation, certmanagerv1.WantInjectAPIServerCAAnnotation} {
		if from := o.meta.Annotations[name]; from != "" && o.injector == "" {
			o.injector, o.injectFrom = name, from
		}
	}
	return o
}

// serverName returns the name that kube-apiserver verifies a certificate for, see
// k8s.io/apiserver/pkg/util/webhook.
func serverName(c *admissionregistrationv1.WebhookClientConfig) string {
	switch {
	case c.Service != nil:
		return c.Service.Name + "." + c.Service.Namespace + ".svc"
	case c.URL != nil:
		if u, err := url.Parse(*c.URL); err == nil {
			return u.Hostname()
		}
	}
	return ""
}

// isOurs reports whether a webhook calls one of the hosts. Without any, it does.
func (w *webhook) isOurs(hosts []string) bool {
	return len(hosts) == 0 || slices.ContainsFunc(hosts, func(host string) bool { return sameHost(host, w.server) })
}

// sameHost reports whether a certificate for the host is valid for the name: letters of
// either case, addresses in any notation, and * for one label.
func sameHost(host, name string) bool {
	host, name = strings.TrimSuffix(host, "."), strings.TrimSuffix(name, ".")
	if a, err := netip.ParseAddr(host); err == nil {
		b, err := netip.ParseAddr(name)
		return err == nil && a.Unmap() == b.Unmap()
	}
	if domain, ok := strings.CutPrefix(host, "*."); ok {
		label, rest, _ := strings.Cut(name, ".")
		return label != "" && strings.EqualFold(domain, rest)
	}
	return host != "" && strings.EqualFold(host, name)
}

// Manager is a field manager.
type Manager struct {
	// Name is what the writer calls itself: "kubectl-client-side-apply", "helm".
	Name string
	// Operation is "Apply" or "Update".
	Operation string
	// Time is when it last wrote, zero if that was not recorded.
	Time time.Time
}

// managers returns those of a field of a webhook, the latest first.
func (o *object) managers(webhook string, field ...any) []Manager {
	path := fieldpath.MakePathOrDie(append([]any{"webhooks", fieldpath.KeyByFields("name", webhook)}, field...)...)
	var list []Manager
	for _, f := range o.meta.ManagedFields {
		var set fieldpath.Set
		if f.FieldsV1 == nil || f.Subresource != "" || set.FromJSON(bytes.NewReader(f.FieldsV1.GetRawBytes())) != nil || !set.Has(path) {
			continue
		}
		m := Manager{Name: f.Manager, Operation: string(f.Operation)}
		if f.Time != nil {
			m.Time = f.Time.UTC()
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Manager) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Operation, b.Operation))
	})
	return list
}

// owns reports whether a Writer applied a field of a webhook: the API server removes it if a patch lacks it.
func (o *object) owns(webhook string, field ...any) bool {
	return slices.ContainsFunc(o.managers(webhook, field...), func(m Manager) bool {
		return m.Name == FieldManager && m.Operation == string(metav1.ManagedFieldsOperationApply)
	})
}

// bundle is a caBundle as kube-apiserver reads it. It is immutable.
type bundle struct {
	empty bool
	pool  *x509.CertPool
	certs []*x509.Certificate
	// remark is what is wrong with it, "" if nothing is.
	remark string
}

// parseBundle reads a caBundle as x509.CertPool.AppendCertsFromPEM does, which
// kube-apiserver uses: blocks that it cannot read are skipped.
func parseBundle(raw string) *bundle {
	b := &bundle{empty: raw == "", pool: x509.NewCertPool()}
	read := 0
	for block, rest := pem.Decode([]byte(raw)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			read++
			b.pool.AddCert(cert)
			if !b.has(cert) {
				b.certs = append(b.certs, cert)
			}
		}
	}
	begun := strings.Count(raw, "-----BEGIN ")
	switch {
	case b.empty:
		b.remark = "no caBundle"
	case begun > read:
		b.remark = fmt.Sprintf("%d of its %d PEM blocks are not certificates and are ignored", begun-read, begun)
	case read == 0:
		b.remark = "it has no certificate"
	}
	return b
}

func (b *bundle) has(cert *x509.Certificate) bool { return slices.ContainsFunc(b.certs, cert.Equal) }
