package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// SecretStoreConfig configures a SecretStore.
type SecretStoreConfig struct {
	// Client is of the API server.
	Client certs.Client
	// Namespace and Name are those of the Secret.
	Namespace, Name string
	// DryRun makes the API server check writes without persisting them.
	DryRun bool
	// Notify receives an event from the goroutine of Watch when the right to watch is
	// missing, and when it is granted. The subject is the store's String. Nil drops them.
	Notify func(certs.Event)
}

// SecretStore is a Store in a Secret of type Opaque.
//
// It needs the rights to get, watch and patch the Secret, and to create secrets in its
// namespace, which cannot be limited to a name; a Secret that was made in advance, without
// data, makes the last one unnecessary. Without the right to watch, changes are seen by the
// next Load.
//
// A Secret of another type, and one with data that lacks the keys of a state and the label
// of Gatehouse, is a ForeignError and is never written. Save changes the keys of a state
// alone: labels, annotations, owners and other keys stay. A Secret that is being deleted is
// used until it is gone. No request takes longer than ten seconds.
type SecretStore struct {
	cfg SecretStoreConfig
	// timeout is how long an answer is waited for.
	timeout time.Duration
}

var _ Store = (*SecretStore)(nil)

// NewSecretStore sends no request yet.
func NewSecretStore(cfg SecretStoreConfig) *SecretStore {
	return &SecretStore{cfg: cfg, timeout: kube.Timeout}
}

// String implements Store.
func (s *SecretStore) String() string { return "Secret " + s.cfg.Namespace + "/" + s.cfg.Name }

// Object returns a reference of the Secret, for Events.
func (s *SecretStore) Object() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: s.cfg.Namespace, Name: s.cfg.Name}
}

// Load implements Store.
func (s *SecretStore) Load(ctx context.Context) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	secret, err := s.secrets().Get(ctx, s.cfg.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Record{}, nil
	case err != nil:
		return Record{}, s.request("get").Explain(ctx, err)
	case secret.Type != corev1.SecretTypeOpaque && secret.Type != "":
		return Record{}, s.foreign(fmt.Sprintf("it is of type %q and not %q", truncate.Runes(string(secret.Type), kube.MaxTextLength), corev1.SecretTypeOpaque))
	}
	// One that Gatehouse made is repaired, whatever it holds.
	made := secret.Labels[groupLabel] == labelOf(s.cfg.Name)
	if strange := foreignKeys(secret.Data); strange != "" && !made {
		return Record{}, s.foreign("it holds " + strange + " and no key of Gatehouse")
	}
	return Record{Exists: true, Data: secret.Data, Version: versionOf(secret)}, nil
}

func (s *SecretStore) foreign(problem string) error {
	return &ForeignError{Place: s.String(), Problem: problem, Remedy: "use another Secret, or delete this one if it is not needed"}
}

// foreignKeys names the keys of data that is not a state. It returns "" if any key is one
// of a state, or if there is no key. The key of the bundle does not count: others use it too.
func foreignKeys(data map[string][]byte) string {
	const most = 5
	if len(data) == 0 {
		return ""
	}
	for _, key := range rotation.Keys() {
		if _, ok := data[key]; ok && key != rotation.KeyBundle {
			return ""
		}
	}
	var names []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if len(names) == most {
			names = append(names, fmt.Sprintf("%d more", len(data)-most))
			break
		}
		names = append(names, fmt.Sprintf("%q", truncate.Runes(key, kube.MaxTextLength/most)))
	}
	return strings.Join(names, ", ")
}

// versionOf includes the UID, because an etcd that was restored from a backup repeats
// resource versions.
func versionOf(secret *corev1.Secret) string {
	return string(secret.UID) + "/" + secret.ResourceVersion
}

// Save implements Store.
func (s *SecretStore) Save(ctx context.Context, old Record, data map[string][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if !old.Exists {
		return s.create(ctx, data)
	}
	return s.patch(ctx, old.Version, data)
}

func (s *SecretStore) create(ctx context.Context, data map[string][]byte) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.cfg.Namespace, Name: s.cfg.Name, Labels: s.labels()},
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
	_, err := s.secrets().Create(ctx, secret, metav1.CreateOptions{FieldManager: stateManager, DryRun: s.dryRun()})
	switch {
	case apierrors.IsAlreadyExists(err):
		return ErrConflict
	case err != nil:
		return s.request("create").Explain(ctx, err)
	}
	return nil
}

// dryRun returns the options of writes.
func (s *SecretStore) dryRun() []string {
	if s.cfg.DryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// labels returns those of a Secret that Gatehouse makes. The Leases have the same ones.
func (s *SecretStore) labels() map[string]string {
	return map[string]string{kube.ManagedByLabel: kube.ManagedBy, groupLabel: labelOf(s.cfg.Name)}
}

// patch changes the keys of a state alone, which an update cannot do.
func (s *SecretStore) patch(ctx context.Context, version string, data map[string][]byte) error {
	var change struct {
		Metadata struct {
			UID             string `json:"uid"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		// Data has null for what is to go.
		Data map[string][]byte `json:"data"`
	}
	change.Metadata.UID, change.Metadata.ResourceVersion, _ = strings.Cut(version, "/")
	if change.Metadata.ResourceVersion == "" {
		return ErrConflict // without one, the API server would not compare
	}
	change.Data = map[string][]byte{}
	for _, key := range rotation.Keys() {
		change.Data[key] = nil
	}
	for key, value := range data {
		change.Data[key] = append([]byte{}, value...)
	}
	body, err := json.Marshal(&change)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	_, err = s.secrets().Patch(ctx, s.cfg.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: stateManager, DryRun: s.dryRun()})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), kube.IsInvalidField(err, "metadata.uid"):
		return ErrConflict
	case kube.IsInvalidField(err, "data"):
		return kube.NewError(fmt.Sprintf("%s: it cannot be written, because it has \"immutable: true\" (hint: delete it: a running replica restores it from memory)", s), err)
	case err != nil:
		return s.request("patch").Explain(ctx, err)
	}
	return nil
}

// Watch implements Store. It tries again after failures, with pauses.
func (s *SecretStore) Watch(ctx context.Context, changed func()) {
	state := certs.Reporter{Notify: s.cfg.Notify}
	open := func(ctx context.Context) (watch.Interface, error) {
		return s.secrets().Watch(ctx, kube.SelectName(s.cfg.Name))
	}
	began := func(err error) {
		event := certs.Event{Subject: s.String(), Object: s.Object()}
		switch {
		case apierrors.IsForbidden(err): // Load meets every other problem too
			event.Reason = certs.ReasonStoreFailed
			event.Err = fmt.Errorf("changes are detected only every %s: %w", PollInterval, s.request("watch").Explain(ctx, err))
		case err != nil || !state.HasState():
			return
		default:
			event.Message = "changes are detected at once again"
		}
		state.Report(event)
	}
	kube.Watch(ctx, s.timeout, open, began, func() bool {
		changed()
		return true
	})
}

func (s *SecretStore) secrets() typedv1.SecretInterface {
	return s.cfg.Client.CoreV1().Secrets(s.cfg.Namespace)
}

func (s *SecretStore) request(verb string) *kube.Request {
	r := &kube.Request{Object: s.String(), Verb: verb, Resource: "secrets"}
	r.Right = fmt.Sprintf("a Role in namespace %q must allow get, watch and patch of the secret %q", s.cfg.Namespace, s.cfg.Name)
	if verb == "create" {
		r.Right = fmt.Sprintf("a Role in namespace %q must allow create of secrets, which cannot be limited to a name; or create the secret %q in advance, without data", s.cfg.Namespace, s.cfg.Name)
	}
	return r
}
