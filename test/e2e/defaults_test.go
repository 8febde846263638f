package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

const (
	// defaultsData are manifests, and what API servers make of them. The package above compares what it fills in without
	// one.
	defaultsData = "../../webhooks/kinds/defaults/testdata"
	// defaultsUser creates them, so that what others create at the same time is not taken for theirs.
	defaultsUser = "creator-of-manifests"
)

// TestRecordedDefaults shows that the objects that the repository keeps are those that a real API server makes of its
// manifests: every manifest is created with a dry run, and what a validating webhook is sent, but for what the API
// server assigns, must be what was recorded for its version. What a version does not serve has no record. UPDATE_GOLDEN=1
// records.
func TestRecordedDefaults(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	sent := w.watchAdmission(t)
	minor := w.Minor(t)
	recorded := filepath.Join(defaultsData, "kubernetes-1."+strconv.Itoa(minor))
	files, err := filepath.Glob(filepath.Join(defaultsData, "*.yaml"))
	must(t, err)
	if len(files) == 0 {
		t.Fatalf("%s has no manifests", defaultsData)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			output, err := w.dryRun(t, file)
			if name == "mutating" && minor < 36 {
				if err == nil || !strings.Contains(err.Error(), `no matches for kind "MutatingAdmissionPolicy" in version "admissionregistration.k8s.io/v1"`) {
					t.Errorf("got %v", err)
				}
				return
			}
			must(t, err)
			objects, err := sent.instead(output)
			must(t, err)
			golden := filepath.Join(recorded, name+".json")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				must(t, os.MkdirAll(recorded, 0o750))
				must(t, os.WriteFile(golden, objects, 0o600))
				return
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			if !bytes.Equal(objects, want) {
				t.Errorf("the API server does not make of the manifests what %s says, but\n%s", golden, objects)
			}
		})
	}
}

// dryRun is what the API server answers when all objects of a file are created.
func (w *world) dryRun(t *testing.T, file string) ([]byte, error) {
	t.Helper()
	kubectl := w.Kubectl(t.Context(), "create", "--dry-run=server", "--namespace", "default", "--output", "json",
		"--as", defaultsUser, "--as-group", "system:masters", "--filename", file)
	var refused bytes.Buffer
	kubectl.Stderr = &refused
	output, err := kubectl.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(refused.String()))
	}
	return output, nil
}

// admitted are the objects that a validating webhook has been sent.
type admitted struct {
	mu   sync.Mutex
	sent map[string]*unstructured.Unstructured
}

func admittedKey(o *unstructured.Unstructured) string {
	return strings.Join([]string{o.GetAPIVersion(), o.GetKind(), o.GetName()}, " ")
}

// ServeHTTP allows everything.
func (a *admitted) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var (
		review admissionv1.AdmissionReview
		object unstructured.Unstructured
	)
	err := json.NewDecoder(r.Body).Decode(&review)
	if err == nil {
		err = json.Unmarshal(review.Request.Object.Raw, &object)
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent[admittedKey(&object)] = &object
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	err = json.NewEncoder(rw).Encode(review)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
	}
}

// instead makes a list of the objects, each as the webhook was sent it, without what no one but the API server can
// know. Registrations and policies of admission are not sent to webhooks.
func (a *admitted) instead(objects []byte) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []any
	for decoder := json.NewDecoder(bytes.NewReader(objects)); ; {
		o := new(unstructured.Unstructured)
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return json.MarshalIndent(list, "", " ")
		}
		if err != nil {
			return nil, err
		}
		if sent, found := a.sent[admittedKey(o)]; found {
			o = sent
		} else if o.GroupVersionKind().Group != admissionregistrationv1.GroupName {
			return nil, errors.New("the webhook was not sent " + admittedKey(o))
		}
		removeAssigned(o)
		list = append(list, o.Object)
	}
}

// watchAdmission registers a validating webhook for what defaultsUser creates, and waits until it is called.
func (w *world) watchAdmission(t *testing.T) *admitted {
	t.Helper()
	const name = "defaults"
	a := &admitted{sent: make(map[string]*unstructured.Unstructured)}
	client := w.serveWebhook(t, name, a)
	configurations := w.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := configurations.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name + ".example.com", ClientConfig: client, AdmissionReviewVersions: []string{"v1"},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "user", Expression: `request.userInfo.username == "` + defaultsUser + `"`},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}},
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		err := configurations.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	support.Eventually(t, "the webhook is called", func() error {
		output, err := w.dryRun(t, filepath.Join(defaultsData, "pods.yaml"))
		if err == nil {
			_, err = a.instead(output)
		}
		return err
	})
	return a
}

func removeAssigned(o *unstructured.Unstructured) {
	remove := func(fields ...string) { unstructured.RemoveNestedField(o.Object, fields...) }
	remove("status")
	for _, field := range []string{"uid", "creationTimestamp", "generation", "managedFields", "resourceVersion", "namespace"} {
		remove("metadata", field)
	}
	if o.GetGenerateName() != "" {
		remove("metadata", "name")
	}
	switch o.GetKind() {
	case "Service":
		for _, field := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"} {
			remove("spec", field)
		}
		ports, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "ports")
		list, _ := ports.([]any)
		for _, port := range list {
			unstructured.RemoveNestedField(port.(map[string]any), "nodePort")
		}
	case "Job":
		if manual, _, _ := unstructured.NestedBool(o.Object, "spec", "manualSelector"); manual {
			return
		}
		remove("spec", "selector")
		for _, metadata := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
			labels := append(slices.Clone(metadata), "labels")
			for _, label := range []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"} {
				remove(append(labels, label)...)
			}
			if left, _, _ := unstructured.NestedMap(o.Object, labels...); len(left) == 0 {
				remove(labels...)
			}
		}
	case "Pod":
		renameTokenVolume(o)
	}
}

// renameTokenVolume gives the volume with the token the name that package apidefaults gives it, where the API server
// has made one up. A volume that the manifest has stays.
func renameTokenVolume(o *unstructured.Unstructured) {
	const prefix, made = "kube-api-access-", len("00000")
	rename := func(list any) {
		elements, _ := list.([]any)
		for _, element := range elements {
			fields := element.(map[string]any)
			name, _ := fields["name"].(string)
			if rest, found := strings.CutPrefix(name, prefix); found && len(rest) == made {
				fields["name"] = prefix + "00000"
			}
		}
	}
	spec, _ := o.Object["spec"].(map[string]any)
	rename(spec["volumes"])
	for _, kind := range []string{"containers", "initContainers"} {
		containers, _ := spec[kind].([]any)
		for _, container := range containers {
			rename(container.(map[string]any)["volumeMounts"])
		}
	}
}
