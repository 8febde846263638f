package drill

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const (
	// requestTimeout is how long the API server works on a request that writes, whatever its client waits:
	// requestTimeoutUpperBound of k8s.io/apiserver/pkg/endpoints/handlers.
	requestTimeout = 34 * time.Second
	// soon is how long before its end a CA should have been renewed.
	soon = 30 * 24 * time.Hour
)

// findRisks adds what makes an outage more probable, longer or wider.
func (d *Drill) findRisks(ctx context.Context, o *Options) error {
	for _, h := range d.cluster.hooks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s := d.subjects[h]
		if h.broken == nil && h.fails && !h.isNarrowed() && h.matchesKubernetes() {
			s.add(NoSelector, nil, "failurePolicy is Fail, and it has neither a namespaceSelector, an objectSelector nor a match condition")
		}
		if h.fails && slices.ContainsFunc(h.GetRules(), isWild) {
			s.add(Wildcard, nil, "failurePolicy is Fail, and a rule has * for apiGroups or resources")
		}
		if effects := h.GetSideEffects(); effects != nil && (*effects == admissionregistrationv1.SideEffectClassSome || *effects == admissionregistrationv1.SideEffectClassUnknown) {
			s.add(SideEffects, nil, "sideEffects is %s, so the API server refuses dry runs", *effects)
		}
		if service, port := h.service(); service != nil {
			d.checkService(s, service.Namespace, service.Name, port)
		}
		d.checkBundle(ctx, s, h, o)
	}
	for _, name := range slices.Sorted(maps.Keys(d.cluster.definitions)) {
		d.checkConversion(name, d.cluster.definitions[name], o)
	}
	for _, a := range d.cluster.apiServices {
		s := d.addSubject("APIService/"+a.name, a.namespace+"/"+a.service, a.place)
		s.add(ExtensionAPI, nil, "%s answers for a part of the API", s.Backend)
		d.checkService(s, a.namespace, a.service, a.port)
	}
	return d.checkTogether(ctx)
}

// addSubject adds what must answer and is no webhook for admission.
func (d *Drill) addSubject(object, backend string, place Place) *Subject {
	s := &Subject{Object: object, Backend: backend, Findings: []Finding{}, Place: place}
	d.report.Subjects = append(d.report.Subjects, s)
	return s
}

// isWild reports whether a rule matches resources that it does not name. All resources of a group of custom resources are named by it.
func isWild(r admissionregistrationv1.RuleWithOperations) bool {
	return slices.Contains(r.APIGroups, "*") || slices.ContainsFunc(r.Resources, func(name string) bool { return name == "*" || name == "*/*" }) && slices.ContainsFunc(r.APIGroups, isOfKubernetes)
}

// isOfKubernetes reports whether a group is one that Kubernetes itself serves, or any.
func isOfKubernetes(group string) bool {
	switch group {
	case "", "*", "apps", "batch", "autoscaling", "policy", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
		"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io",
		"scheduling.k8s.io", "storage.k8s.io", "flowcontrol.apiserver.k8s.io", "resource.k8s.io":
		return true
	}
	return false
}

// matchesKubernetes reports whether a rule is about resources of Kubernetes itself.
func (h *hook) matchesKubernetes() bool {
	return slices.ContainsFunc(h.GetRules(), func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.ContainsFunc(r.APIGroups, isOfKubernetes)
	})
}

// checkService adds what is wrong with a Service and its pods.
func (d *Drill) checkService(s *Subject, namespace, name string, port int32) {
	key := namespace + "/" + name
	service := d.cluster.services[key]
	if service == nil {
		if d.cluster.Whole {
			s.add(ServiceMissing, nil, "the Service %s does not exist", key)
		} else {
			d.assume("the Service %s is not known: any pod in its namespace stands for its pods", key)
		}
		return
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		s.add(WrongPort, nil, "the Service %s has no port %d: it has %s", key, port, portsOf(service))
	}
	found := d.cluster.behind(key)
	if d.cluster.Whole && service.Spec.Type != corev1.ServiceTypeExternalName {
		ready := 0
		for _, slice := range d.cluster.slices[key] {
			for k := range slice.Endpoints {
				if c := slice.Endpoints[k].Conditions.Ready; c == nil || *c {
					ready++
				}
			}
		}
		switch {
		case ready == 0:
			s.add(NoEndpoints, nil, "no ready pod is behind the Service %s", key)
		case i >= 0 && !d.hasTarget(service, &service.Spec.Ports[i]):
			s.add(WrongPort, nil, "no endpoint of the Service %s has its port %d", key, port)
		}
	}
	if len(found) == 0 {
		return
	}
	pods, nodes, isDaemon := 0, map[string]bool{}, false
	for _, g := range found {
		wanted := g.pods
		if g.replicas >= 0 {
			wanted = g.replicas
		}
		pods += wanted
		isDaemon = isDaemon || g.kind == "DaemonSet"
		for node := range g.nodes {
			nodes[node] = true
		}
	}
	switch {
	case isDaemon:
		return
	case pods == 1:
		s.add(OneReplica, nil, "one pod answers: %s", found[0].title())
		return // what follows is about several
	case len(nodes) == 1 && pods > 1:
		s.add(OneNode, nil, "all %d pods run on the node %s", pods, slices.Collect(maps.Keys(nodes))[0])
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(d.cluster.budgets)), func(b *policyv1.PodDisruptionBudget) bool { return covers(b, found[0]) }) {
		s.add(NoBudget, nil, "no PodDisruptionBudget selects the pods of %s", found[0].title())
	}
}

// covers reports whether a budget selects the pods of a group.
func covers(b *policyv1.PodDisruptionBudget, g *podGroup) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && b.Namespace == g.namespace && selector.Matches(g.labels)
}

// hasTarget reports whether an endpoint has the port of a Service.
func (d *Drill) hasTarget(service *corev1.Service, port *corev1.ServicePort) bool {
	return slices.ContainsFunc(d.cluster.slices[service.Namespace+"/"+service.Name], func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return p.Name == nil || *p.Name == port.Name })
	})
}

// portsOf names the ports of a Service.
func portsOf(service *corev1.Service) string {
	var names []string
	for i := range service.Spec.Ports {
		names = append(names, strconv.Itoa(int(service.Spec.Ports[i].Port)))
	}
	if len(names) == 0 {
		return "none"
	}
	return describe(names)
}

// checkBundle adds what is wrong with the CA of a webhook.
func (d *Drill) checkBundle(ctx context.Context, s *Subject, h *hook, o *Options) {
	bundle := h.GetClientConfig().CABundle
	service, servicePort := h.service()
	if len(bundle) == 0 && (!d.cluster.Whole || service == nil) {
		return // something writes it when it is installed, or the CAs of the API server count
	}
	roots, ok := checkCAs(s, bundle, o.Now)
	if !ok || service == nil {
		return
	}
	if o.Served == nil {
		if d.cluster.Whole {
			d.assume("the certificates that webhooks serve are those that caBundle verifies: none was asked for (hint: --handshake)")
		}
		return
	}
	namespace, pod, port, found := d.cluster.endpoint(h.backend(), servicePort)
	if !found {
		return // which is another finding
	}
	name := service.Name + "." + service.Namespace + ".svc"
	served, err := o.Served(ctx, namespace, pod, port, name)
	if err != nil {
		d.addUnknown(h.backend(), "the certificate that %s serves was not seen: %v", h.backend(), err)
		return
	}
	between := x509.NewCertPool()
	for _, certificate := range served[1:] {
		between.AddCert(certificate)
	}
	if _, err := served[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: between, CurrentTime: o.Now}); err != nil {
		s.add(CAMismatch, nil, "the API server does not trust what a pod of %s serves: %v", h.backend(), err)
	}
}

// checkCAs adds what is wrong with CAs, and reports whether some can verify a certificate.
func checkCAs(s *Subject, bundle []byte, now time.Time) (*x509.CertPool, bool) {
	const most = 1 << 20
	if len(bundle) > most {
		s.add(CAInvalid, nil, "caBundle has more than %d bytes", most)
		return nil, false
	}
	certificates, err := pemcert.Parse(bundle)
	if err == nil && len(certificates) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		s.add(CAInvalid, nil, "caBundle cannot be used: %v", err)
		return nil, false
	}
	pool, last := x509.NewCertPool(), time.Time{}
	for _, certificate := range certificates {
		pool.AddCert(certificate)
		if certificate.NotAfter.After(last) {
			last = certificate.NotAfter
		}
	}
	if left := last.Sub(now); left < 0 {
		s.add(CAExpires, nil, "the last CA of caBundle ended on %s", last.UTC().Format(time.DateOnly))
	} else if left < soon {
		s.add(CAExpires, nil, "the last CA of caBundle ends on %s, in %s", last.UTC().Format(time.DateOnly), diagnostic.Count(int(left.Hours()/24), "day"))
	}
	return pool, last.After(now)
}

// checkConversion adds a definition that needs a conversion webhook.
func (d *Drill) checkConversion(name string, of *definition, o *Options) {
	if of.service == "" {
		return
	}
	s := d.addSubject("CustomResourceDefinition/"+name, of.namespace+"/"+of.service, of.place)
	s.add(Conversion, nil, "%s converts between the versions of %s", s.Backend, name)
	d.checkService(s, of.namespace, of.service, of.port)
	if text, err := base64.StdEncoding.DecodeString(of.caBundle); err == nil && len(text) > 0 {
		checkCAs(s, text, o.Now)
	}
}

// checkTogether adds what webhooks are together for the creation of a pod in each namespace.
func (d *Drill) checkTogether(ctx context.Context) error {
	for _, p := range d.ordinaryRequests() {
		var mutating []*hook
		var sum, most time.Duration
		for _, h := range d.cluster.hooks {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			switch c, _, _ := h.calls(ctx, p.request); {
			case c != called:
			case h.mutates:
				mutating = append(mutating, h)
				if sum += h.timeout; h.reinvokes {
					sum += h.timeout
				}
			default:
				most = max(most, h.timeout)
			}
		}
		if total := sum + most; total > requestTimeout && len(mutating) > 0 {
			d.addTogether(SlowRequests, mutating, fmt.Sprintf("together with %s, creating a pod in %s may wait %s, and a request ends after %s", diagnostic.Count(len(mutating)-1, "other mutating webhook"), p.Namespace, total, requestTimeout))
		}
		slices.SortStableFunc(mutating, func(a, b *hook) int { return cmp.Compare(a.configuration, b.configuration) })
		for i, h := range mutating {
			later := slices.IndexFunc(mutating[i:], func(o *hook) bool { return o.backend() != h.backend() })
			if later > 0 && !h.reinvokes {
				d.addTogether(Order, []*hook{h}, fmt.Sprintf("it is called for new pods before %s, and reinvocationPolicy is Never", mutating[i+later].title()))
			}
		}
	}
	return nil
}

// addTogether adds a finding to webhooks that have none of its code.
func (d *Drill) addTogether(code Code, hooks []*hook, message string) {
	for _, h := range hooks {
		if s := d.subjects[h]; !slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.Code == code }) {
			s.add(code, nil, "%s", message)
		}
	}
}
