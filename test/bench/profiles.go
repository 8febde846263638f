package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

const (
	// optOutLabel keeps a pod from getting the telemetry sidecar.
	optOutLabel = "telemetry.example.com/disabled"
	// meshName is the name of the container and of the volume that the second
	// profile adds.
	meshName = "mesh-agent"

	// The values that the parameters' pod asks for, and the annotations with
	// which it does.
	parameterPort             = "15021"
	parameterMemory           = "512Mi"
	parameterPortAnnotation   = "telemetry.sidecar.gatehouse.dev/port"
	parameterMemoryAnnotation = "telemetry.sidecar.gatehouse.dev/memory"
)

// document is a document of a user, before it is written as JSON.
type document map[string]any

// sidecarProfile is a profile that adds to every pod that it matches, and that
// does not decline, what is in the partial pod spec.
func sidecarProfile(name string, match, spec document) document {
	return document{
		"apiVersion": "gatehouse.dev/v1alpha1",
		"kind":       "SidecarProfile",
		"metadata":   document{"name": name},
		"spec":       document{"match": match, "injection": "OptOut", "template": document{"spec": spec}},
	}
}

// agentSpec is a partial pod spec of one native sidecar and one volume.
func agentSpec(name string) document {
	return document{"initContainers": []corev1.Container{sidecarContainer(name)}, "volumes": []corev1.Volume{sidecarVolume(name)}}
}

// telemetryProfile selects the benchmark's namespace and every pod that has not
// opted out.
func telemetryProfile() document {
	return sidecarProfile("telemetry", document{
		"namespaceSelector": document{"matchLabels": document{"team": "shop"}},
		"objectSelector":    document{"matchExpressions": []document{{"key": optOutLabel, "operator": "DoesNotExist"}}},
	}, agentSpec(sidecarName))
}

// meshProfile selects the benchmark's namespace.
func meshProfile() document {
	return sidecarProfile("mesh", document{"namespaceSelector": document{"matchLabels": document{"team": "shop"}}}, agentSpec(meshName))
}

// otherProfile selects pods that the benchmark does not have: by the namespace
// of another team, or by the name of another application.
func otherProfile(i int) document {
	match := document{"namespaceSelector": document{"matchLabels": document{"team": fmt.Sprintf("team-%03d", i)}}}
	if i%2 == 1 {
		match = document{"objectSelector": document{"matchLabels": document{nameLabel: fmt.Sprintf("service-%03d", i)}}}
	}
	name := fmt.Sprintf("other-%03d", i)
	return sidecarProfile(name, match, agentSpec(name))
}

// parameterProfile is telemetryProfile with five placeholders, two of which a
// pod fills with annotations.
func parameterProfile() document {
	profile := telemetryProfile()
	spec, _ := profile["spec"].(document)
	spec["parameters"] = []document{
		{"name": "image", "type": "string", "default": "registry.example.com/shop/" + sidecarName + ":1.42.7", "pattern": `registry\.example\.com/.+`},
		{"name": "port", "type": "port", "default": 15020, "minimum": 1024},
		{"name": "collector", "type": "string", "default": "http://collector.telemetry.svc:4318"},
		{"name": "level", "type": "enum", "default": "info", "enum": []string{"debug", "info", "error"}},
		{"name": "memory", "type": "quantity", "default": "256Mi", "maximum": "1Gi"},
	}
	container := document{
		"name":            sidecarName,
		"image":           "${params.image}",
		"args":            []string{"--listen=:${params.port}", "--forward=${params.collector}", "--level=${params.level}"},
		"restartPolicy":   "Always",
		"resources":       document{"limits": document{"memory": "${params.memory}"}, "requests": document{"cpu": "100m", "memory": "128Mi"}},
		"volumeMounts":    []corev1.VolumeMount{{Name: sidecarName, MountPath: "/var/spool/" + sidecarName}},
		"securityContext": sidecarContainer(sidecarName).SecurityContext,
	}
	spec["template"] = document{"spec": document{"initContainers": []document{container}, "volumes": []corev1.Volume{sidecarVolume(sidecarName)}}}
	return profile
}
