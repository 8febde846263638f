package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/store"
)

const (
	// certificateManager owns the fields that are written.
	certificateManager = "gatehouse-certificates"
	// desiredAnnotation has a hash of what the Gatehouse that wrote last desired. It
	// distinguishes changes of other clients, which are reverted, from what a Gatehouse of
	// another version or configuration wrote, which is kept.
	desiredAnnotation = "gatehouse.dev/wanted"

	// issuerDuration is the life of a CA.
	issuerDuration = 5 * 365 * 24 * time.Hour
	// servingDuration is the life of a serving certificate. cert-manager renews it after
	// two thirds of that.
	servingDuration = 90 * 24 * time.Hour
	// servingKeySize is that of P-256: a handshake with it takes a thirtieth of the time
	// that RSA-2048 takes.
	servingKeySize = 256
	// maxName is the longest name of a Certificate: the names of the other objects and the
	// common name of the CA are derived from it.
	maxName = 50
)

// CertManagerObjects returns the objects of cert-manager that issue a serving certificate
// for the names and addresses, in the order in which they are created: a CA for it alone,
// so that no other certificate is trusted, and last the Certificate NAME, whose Secret is
// NAME-tls. With an issuer it returns the Certificate alone.
func CertManagerObjects(namespace, name string, dns, ips []string, issuer *cmmeta.IssuerReference) []runtime.Object {
	var (
		selfSigned = name + "-selfsigned"
		authority  = name + "-ca"
	)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{kube.ManagedByLabel: kube.ManagedBy}}
	}
	typed := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: certmanagerv1.SchemeGroupVersion.String(), Kind: kind}
	}
	ref := func(name string) cmmeta.IssuerReference {
		return cmmeta.IssuerReference{Name: name, Kind: certmanagerv1.IssuerKind, Group: certmanagerv1.SchemeGroupVersion.Group}
	}
	key := func() *certmanagerv1.CertificatePrivateKey {
		return &certmanagerv1.CertificatePrivateKey{
			Algorithm: certmanagerv1.ECDSAKeyAlgorithm, Size: servingKeySize, RotationPolicy: certmanagerv1.RotationPolicyAlways,
		}
	}
	from := ref(authority)
	if issuer != nil {
		from = *issuer
	}
	serving := &certmanagerv1.Certificate{
		TypeMeta: typed(certmanagerv1.CertificateKind), ObjectMeta: meta(name),
		Spec: certmanagerv1.CertificateSpec{
			SecretName: servingSecret(name),
			Duration:   &metav1.Duration{Duration: servingDuration},
			DNSNames:   dns, IPAddresses: ips,
			Usages:     []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageServerAuth},
			PrivateKey: key(),
			IssuerRef:  from,
		},
	}
	if issuer != nil {
		return []runtime.Object{serving}
	}
	return []runtime.Object{
		&certmanagerv1.Issuer{
			TypeMeta: typed(certmanagerv1.IssuerKind), ObjectMeta: meta(selfSigned),
			Spec: certmanagerv1.IssuerSpec{IssuerConfig: certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		},
		&certmanagerv1.Certificate{
			TypeMeta: typed(certmanagerv1.CertificateKind), ObjectMeta: meta(authority),
			Spec: certmanagerv1.CertificateSpec{
				CommonName: authority,
				SecretName: servingSecret(authority), // not NAME-ca, which a CA of our own may have
				Duration:   &metav1.Duration{Duration: issuerDuration},
				IsCA:       true,
				Usages:     []certmanagerv1.KeyUsage{certmanagerv1.UsageCertSign},
				PrivateKey: key(),
				IssuerRef:  ref(selfSigned),
			},
		},
		&certmanagerv1.Issuer{
			TypeMeta: typed(certmanagerv1.IssuerKind), ObjectMeta: meta(authority),
			Spec: certmanagerv1.IssuerSpec{IssuerConfig: certmanagerv1.IssuerConfig{CA: &certmanagerv1.CAIssuer{SecretName: servingSecret(authority)}}},
		},
		serving,
	}
}

// servingSecret returns the Secret of a Certificate that Gatehouse makes.
func servingSecret(name string) string { return name + "-tls" }

// object is a desired object.
type object struct {
	resource schema.GroupVersionResource
	desired  *unstructured.Unstructured
	hash     string
}

func newObject(made runtime.Object) (object, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(made)
	if err != nil {
		return object{}, err
	}
	o := object{desired: &unstructured.Unstructured{Object: fields}}
	unstructured.RemoveNestedField(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	spec, err := json.Marshal(fields["spec"])
	if err != nil {
		return object{}, err
	}
	sum := sha256.Sum256(spec)
	o.hash = hex.EncodeToString(sum[:16])
	o.desired.SetAnnotations(map[string]string{desiredAnnotation: o.hash})
	o.resource = certificates()
	if o.desired.GetKind() == certmanagerv1.IssuerKind {
		o.resource.Resource = "issuers"
	}
	return o, nil
}

func certificates() schema.GroupVersionResource {
	return certmanagerv1.SchemeGroupVersion.WithResource("certificates")
}

func (o *object) String() string {
	return o.desired.GetKind() + " " + o.desired.GetNamespace() + "/" + o.desired.GetName()
}

// ensure creates the objects that are missing and reverts changes of other clients. After a
// success it does so once a minute at most: cert-manager issues anew after every change.
func (m *CertManager) ensure(ctx context.Context, now time.Time) (wrong problems) {
	if since := now.Sub(m.ensuredAt); since >= 0 && since < issuedInterval {
		return nil
	}
	// Every write waits for cert-manager's own webhook, and must not use up the time for
	// reading.
	ctx, cancel := context.WithTimeout(ctx, 2*kube.Timeout)
	defer cancel()
	m.conflicts = nil
	lacking := map[string]bool{}
	for i := range m.objects {
		o := &m.objects[i]
		done, err := m.ensureOne(ctx, o)
		if err != nil {
			// A missing right or kind concerns other objects too, and is reported once.
			if _, what, _ := strings.Cut(err.Error(), ": "); !lacking[what] {
				lacking[what] = apierrors.IsForbidden(err) || kube.IsMissing(err)
				wrong = append(wrong, err)
			}
			if errors.Is(err, errNoCertManager) || !kube.IsAnswer(err) {
				break // it is no different with the others
			}
		}
		if done != "" && m.cfg.Notify != nil {
			event := m.event(m.current.Load())
			event.Message = o.String() + ": " + done
			m.cfg.Notify(event)
		}
	}
	if len(wrong) == 0 {
		m.ensuredAt = now
	}
	return wrong
}

// ensureOne returns what it did, "" if nothing.
func (m *CertManager) ensureOne(ctx context.Context, o *object) (done string, err error) {
	var (
		client = m.cfg.Dynamic.Resource(o.resource).Namespace(m.cfg.Namespace)
		name   = o.desired.GetName()
		apply  = o.desired.DeepCopy()
		force  bool
	)
	done = "was created"
	live, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.IsMissing(err):
	case err != nil:
		return "", m.failed(ctx, o.String(), "get", o.resource.Resource, err)
	case live.GetDeletionTimestamp() != nil:
		return "", fmt.Errorf("%s: is being deleted: Gatehouse creates it again after that", o)
	case live.GetLabels()[kube.ManagedByLabel] != kube.ManagedBy:
		return "", &store.ForeignError{
			Place: o.String(), Problem: "it lacks the label " + kube.ManagedByLabel + "=" + kube.ManagedBy,
			Remedy: "choose another name, omit the hosts to use the Certificate unchanged, or add the label to let Gatehouse change it",
		}
	default:
		mark := live.GetAnnotations()[desiredAnnotation]
		if covers(live.Object, o.desired.Object) { // the mark too
			m.applied[o.String()] = true
			return "", nil
		}
		if mark != o.hash && mark != "" && m.applied[o.String()] {
			m.conflicts = append(m.conflicts, o.String()+": another Gatehouse wrote it differently: use the same hosts, issuer and version for all replicas")
			return "", nil
		}
		// Of two who write at the same time one is refused, and looks again.
		apply.SetResourceVersion(live.GetResourceVersion())
		done, force = "was restored to the configured fields", true
	}
	_, err = client.Apply(ctx, name, apply, metav1.ApplyOptions{FieldManager: certificateManager, Force: force})
	if err != nil {
		verb := "patch"
		if kube.IsMissing(err) || strings.Contains(err.Error(), "cannot create resource") {
			verb = "create" // which applying is, where nothing is there
		}
		return "", m.failed(ctx, o.String(), verb, o.resource.Resource, err)
	}
	m.applied[o.String()] = true
	return done, nil
}

// covers reports whether an object has all desired fields. It may have others.
func covers(live, want any) bool {
	fields, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(live, want)
	}
	there, ok := live.(map[string]any)
	if !ok {
		return false
	}
	for name, value := range fields {
		if is, ok := there[name]; !ok || !covers(is, value) {
			return false
		}
	}
	return true
}
