package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"
)

// usualHandler is the webhook that somebody would write on controller-runtime:
// decode the pod, change or check it, marshal it and let PatchResponseFromRaw
// find the difference. It adds what the benchmark's first SidecarProfile adds and
// checks what its one policy checks. Logging is discarded and nothing is
// counted, which a real one would not save.
func usualHandler() http.Handler {
	log.SetLogger(logr.Discard())
	decoder := admission.NewDecoder(clientgoscheme.Scheme)
	mutate := admission.HandlerFunc(func(_ context.Context, req admission.Request) admission.Response {
		pod := &corev1.Pod{}
		if err := decoder.Decode(req, pod); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		pod.Spec.InitContainers = append([]corev1.Container{sidecarContainer(sidecarName)}, pod.Spec.InitContainers...)
		pod.Spec.Volumes = append(pod.Spec.Volumes, sidecarVolume(sidecarName))
		raw, err := json.Marshal(pod)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(req.Object.Raw, raw)
	})
	validate := admission.HandlerFunc(func(_ context.Context, req admission.Request) admission.Response {
		pod := &corev1.Pod{}
		if err := decoder.Decode(req, pod); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if problems := podProblems(pod); len(problems) > 0 {
			return admission.Denied(strings.Join(problems, "; "))
		}
		return admission.Allowed("")
	})
	token, _ := benchToken()
	tokens := map[string]authenticationv1.UserInfo{
		token: {Username: tokenUser, Groups: []string{tokenGroup}},
	}
	authenticate := authentication.HandlerFunc(func(_ context.Context, req authentication.Request) authentication.Response {
		user, ok := tokens[req.Spec.Token]
		if !ok {
			return authentication.Unauthenticated("", authenticationv1.UserInfo{})
		}
		return authentication.Authenticated("", user)
	})
	mux := http.NewServeMux()
	mux.Handle(pathMutate, &admission.Webhook{Handler: mutate})
	mux.Handle(pathValidate, &admission.Webhook{Handler: validate})
	mux.Handle(pathAuthenticate, &authentication.Webhook{Handler: authenticate})
	return mux
}

// podProblems says in Go what middleRules says in CEL.
func podProblems(pod *corev1.Pod) []string {
	var problems []string
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if strings.HasSuffix(container.Image, ":latest") || !strings.Contains(container.Image, ":") {
			problems = append(problems, fmt.Sprintf("container %q has image %q without a fixed tag", container.Name, container.Image))
		}
		if _, limited := container.Resources.Limits[corev1.ResourceMemory]; !limited {
			problems = append(problems, fmt.Sprintf("container %q has no memory limit", container.Name))
		}
	}
	if pod.Labels[nameLabel] == "" {
		problems = append(problems, "label "+nameLabel+" is missing")
	}
	return problems
}
