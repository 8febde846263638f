// Package registration keeps webhook configurations and Gatehouse in step. In every replica, a Reader watches the webhook
// configurations and verifies that they trust the serving certificate. In the elected replica, a Writer writes the CA,
// rules and selectors into them, by server-side apply of these fields alone.
package registration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// Subject is what the Events of this package are about.
const Subject = "registration"

// Kind is a kind of webhook configuration.
type Kind string

// The kinds.
const (
	Mutating   Kind = "MutatingWebhookConfiguration"
	Validating Kind = "ValidatingWebhookConfiguration"
)

// kinds returns all kinds, in the order in which they are shown.
func kinds() []Kind { return []Kind{Mutating, Validating} }

// resource returns the plural as in a Role.
func (k Kind) resource() string { return strings.ToLower(string(k)) + "s" }

// CheckName returns an error about what is not the name of a webhook configuration.
func CheckName(name string) error {
	if len(validation.NameIsDNSSubdomain(name, false)) > 0 {
		return fmt.Errorf("%s is not the name of a webhook configuration (hint: gatehouse)", quote(name))
	}
	return nil
}

// quote returns a value of another client for a message.
func quote(text string) string { return strconv.Quote(truncate.Bytes(text, 80)) }

// target is an object that may or may not exist.
type target struct {
	kind Kind
	name string
}

func (t target) String() string { return string(t.kind) + " " + t.name }

// reference returns the object for an Event.
func (t target) reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: string(t.kind), Name: t.name}
}

// targetsOf returns the two configurations of each name, of which at least one must exist, one after the other.
func targetsOf(names []string) (targets []target) {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		for _, k := range kinds() {
			targets = append(targets, target{kind: k, name: name})
		}
	}
	return targets
}

// get reads a configuration from the API server, nil if it does not exist.
func (t target) get(ctx context.Context, client certs.Client) (*object, error) {
	var found runtime.Object
	var err error
	if t.kind == Mutating {
		found, err = client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, t.name, metav1.GetOptions{})
	} else {
		found, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, t.name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newObject(found), nil
}
