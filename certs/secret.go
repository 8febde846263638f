package certs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// RotateAnnotation is an annotation of the Secret. Whoever sets it to another value asks for a new CA.
	RotateAnnotation = "gatehouse.dev/rotate"

	// requestTimeout bounds every request: long enough for a busy API server, and short enough
	// that an isolated replica still checks its clock.
	requestTimeout = 10 * time.Second
	fieldManager   = "gatehouse"
	managedByLabel = "app.kubernetes.io/managed-by"
)

// SecretStore is a Store in a Secret of type Opaque.
//
// It needs the rights to get and update the Secret, and to create secrets in its namespace, which cannot be
// limited to a name; a Secret that was made in advance, without data, makes the last one unnecessary. Save
// changes the keys of a State alone: labels, annotations, owners and other keys stay.
type SecretStore struct {
	// Client is of the API server, and Namespace and Name are those of the Secret.
	Client          Client
	Namespace, Name string
}

var _ Store = (*SecretStore)(nil)

// String implements Store.
func (s *SecretStore) String() string { return "Secret " + s.Namespace + "/" + s.Name }

// Object implements Store.
func (s *SecretStore) Object() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: s.Namespace, Name: s.Name}
}

// Load implements Store.
func (s *SecretStore) Load(ctx context.Context) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secret, err := s.secrets().Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Record{}, nil
	case err != nil:
		return Record{}, s.explain("get", err)
	case secret.Type != corev1.SecretTypeOpaque && secret.Type != "":
		return Record{}, fmt.Errorf("%s: it is of type %.100q and not %q, so Gatehouse does not change it (hint: use another Secret)", s, secret.Type, corev1.SecretTypeOpaque)
	}
	if err := foreignError(s.String(), secret.Data); err != nil && secret.Labels[managedByLabel] != fieldManager {
		return Record{}, err
	}
	return Record{Data: secret.Data, Request: secret.Annotations[RotateAnnotation], secret: secret}, nil
}

// Save implements Store. Of several replicas that make the Secret at the same time, one succeeds.
func (s *SecretStore) Save(ctx context.Context, old Record, data map[string][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if old.secret == nil {
		_, err := s.secrets().Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: map[string]string{managedByLabel: fieldManager}},
			Type:       corev1.SecretTypeOpaque,
			Data:       data,
		}, metav1.CreateOptions{FieldManager: fieldManager})
		if apierrors.IsAlreadyExists(err) {
			return ErrConflict
		}
		return s.explain("create", err)
	}
	secret := old.secret.DeepCopy() // with its resourceVersion, so that a stale writer gets a conflict
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for _, key := range Keys() {
		delete(secret.Data, key)
	}
	maps.Copy(secret.Data, data)
	_, err := s.secrets().Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ErrConflict
	}
	return s.explain("update", err)
}

// Request implements Store.
func (s *SecretStore) Request(ctx context.Context, request string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{RotateAnnotation: request}}})
	if err != nil {
		return err
	}
	_, err = s.secrets().Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "gatehouse-certs"})
	return s.explain("patch", err)
}

func (s *SecretStore) secrets() typedv1.SecretInterface {
	return s.Client.CoreV1().Secrets(s.Namespace)
}

// maybeKey matches what may be a line of a key in PEM or base64.
var maybeKey = regexp.MustCompile(`[A-Za-z0-9+/=]{32,}`)

// explain returns an error for an administrator, without anything that may be a part of a key: some
// admission webhooks repeat the object.
func (s *SecretStore) explain(verb string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	text := truncate.Runes(maybeKey.ReplaceAllString(err.Error(), "[withheld]"), 300)
	if failed := apierr.Unreached(err); failed != nil {
		text = failed.Error()
	}
	hint := ""
	if apierr.LacksRight(err, verb) {
		hint = fmt.Sprintf(" (hint: a Role in namespace %q must allow get and update of the secret %q, and create of secrets)", s.Namespace, s.Name)
	}
	return &requestError{fmt.Sprintf("%s: cannot %s it: %s%s", s, verb, text, hint), err}
}

// requestError is the error of a request with a text for an administrator. The error that it wraps is for programs
// and is not shown: it may hold the body of the request.
type requestError struct {
	text string
	err  error
}

func (e *requestError) Error() string { return e.text }
func (e *requestError) Unwrap() error { return e.err }
