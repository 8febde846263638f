package cabundle

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// object is the used part of a webhook configuration. It is immutable.
type object struct {
	target
	uid             types.UID
	resourceVersion string
	// deleting reports whether it has a deletion timestamp.
	deleting bool
	// injector is the annotation by which cert-manager's cainjector writes its bundles,
	// "" without, and source its value. It ignores the others.
	injector, injectFrom string
	ignored              []string
	fields               []metav1.ManagedFieldsEntry
	entries              []entry
}

// entry is one webhook of a configuration.
type entry struct {
	name string
	// server is the name that the API server calls, which the certificate must have.
	server string
	// raw is the caBundle, and bundle what is in it.
	raw    string
	bundle *bundle
}

func newObject(k kind, c *admissionregistrationv1.ValidatingWebhookConfiguration) *object {
	o := &object{
		target:          target{kind: k, name: c.Name},
		uid:             c.UID,
		resourceVersion: c.ResourceVersion,
		deleting:        c.DeletionTimestamp != nil,
		fields:          c.ManagedFields,
	}
	o.setInjector(c.Annotations)
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		raw := string(w.ClientConfig.CABundle)
		o.entries = append(o.entries, entry{name: w.Name, server: serverName(&w.ClientConfig), raw: raw, bundle: parseBundle(raw)})
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

// setInjector sets the annotation by which cainjector takes over the bundles, see
// https://cert-manager.io/docs/concepts/ca-injector/. Of several, it takes the first in this order.
func (o *object) setInjector(annotations map[string]string) {
	for _, name := range []string{certmanagerv1.WantInjectFromSecretAnnotation, certmanagerv1.WantInjectAnnotation, certmanagerv1.WantInjectAPIServerCAAnnotation} {
		switch {
		case annotations[name] == "":
		case o.injector == "":
			o.injector, o.injectFrom = name, annotations[name]
		default:
			o.ignored = append(o.ignored, name)
		}
	}
}

// reference returns the object for an Event.
func (o *object) reference() corev1.ObjectReference {
	r := o.target.reference()
	r.UID = o.uid
	return r
}

func (t target) reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: string(t.kind), Name: t.name}
}

// ours returns the entries that call one of the hosts that we serve.
func (w *Watcher) ours(o *object) []entry {
	hosts := w.cfg.Hosts
	return slices.DeleteFunc(slices.Clone(o.entries), func(e entry) bool {
		return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(host string) bool { return sameHost(host, e.server) })
	})
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
