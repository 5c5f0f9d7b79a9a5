package kubetest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of docs/kubernetes.yaml, by kind and name.
type manifests struct {
	secrets      map[string]*corev1.Secret
	configs      map[string]*corev1.ConfigMap
	services     map[string]*corev1.Service
	deployments  map[string]*appsv1.Deployment
	statefulSets map[string]*appsv1.StatefulSet
	budgets      map[string]*policyv1.PodDisruptionBudget
	policies     map[string]*networkingv1.NetworkPolicy
	monitors     map[string]*monitoringv1.ServiceMonitor
}

// decode reads a document into the type of its kind, and adds it to the objects of that type. A field that the type does
// not have is an error, as is a field that is given twice or a value of another type.
func decode[T any, P interface {
	*T
	metav1.Object
}](objects map[string]P, document string) error {
	object := P(new(T))
	text, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(text, object) // with its letters in upper or lower case, as the API server wants them
	if err != nil {
		return err
	}
	if len(strict) > 0 {
		return errors.Join(strict...)
	}
	name := object.GetName()
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("name %q: %s", name, strings.Join(problems, "; "))
	}
	if object.GetNamespace() != "limits" {
		return fmt.Errorf("%s is in the namespace %q, want limits", name, object.GetNamespace())
	}
	if objects[name] != nil {
		return fmt.Errorf("%s is there twice", name)
	}
	objects[name] = object
	return nil
}

func read(text string) (*manifests, error) {
	m := &manifests{
		map[string]*corev1.Secret{}, map[string]*corev1.ConfigMap{}, map[string]*corev1.Service{}, map[string]*appsv1.Deployment{},
		map[string]*appsv1.StatefulSet{}, map[string]*policyv1.PodDisruptionBudget{}, map[string]*networkingv1.NetworkPolicy{},
		map[string]*monitoringv1.ServiceMonitor{},
	}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return nil, err
		}
		var err error
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 Secret":
			err = decode(m.secrets, document)
		case "v1 ConfigMap":
			err = decode(m.configs, document)
		case "v1 Service":
			err = decode(m.services, document)
		case "apps/v1 Deployment":
			err = decode(m.deployments, document)
		case "apps/v1 StatefulSet":
			err = decode(m.statefulSets, document)
		case "policy/v1 PodDisruptionBudget":
			err = decode(m.budgets, document)
		case "networking.k8s.io/v1 NetworkPolicy":
			err = decode(m.policies, document)
		case "monitoring.coreos.com/v1 ServiceMonitor":
			err = decode(m.monitors, document)
		default:
			err = errors.New("no type for it")
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", kind.APIVersion, kind.Kind, err)
		}
	}
	return m, nil
}

// problems returns what the API server or a kubelet would refuse, or what would find nothing: selectors, ports, volumes and
// keys that do not fit together.
func (m *manifests) problems() (all []string) {
	problem := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	templates := make(map[string]corev1.PodTemplateSpec)
	check := func(name string, selector *metav1.LabelSelector, template corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim) {
		templates[name] = template
		if !selects(selector.MatchLabels, template.Labels) {
			problem("%s selects %v, its pods have %v", name, selector.MatchLabels, template.Labels)
		}
		volumes := make(map[string]bool)
		for _, claim := range claims {
			volumes[claim.Name] = true
		}
		for _, volume := range template.Spec.Volumes {
			volumes[volume.Name] = true
			if c := volume.ConfigMap; c != nil && m.configs[c.Name] == nil {
				problem("%s: volume %s: no ConfigMap %s", name, volume.Name, c.Name)
			}
			if s := volume.Secret; s != nil {
				secret := m.secrets[s.SecretName]
				for _, item := range s.Items {
					if secret == nil || secret.StringData[item.Key] == "" {
						problem("%s: volume %s: no key %s in Secret %s", name, volume.Name, item.Key, s.SecretName)
					}
				}
			}
		}
		for _, container := range template.Spec.Containers {
			mounted := make(map[string]bool)
			for _, mount := range container.VolumeMounts {
				if !volumes[mount.Name] || mounted[mount.MountPath] {
					problem("%s: %s is mounted twice, or there is no volume %s", name, mount.MountPath, mount.Name)
				}
				mounted[mount.MountPath] = true
			}
			for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
				switch {
				case probe == nil:
				case probe.HTTPGet != nil && !hasPort(template, probe.HTTPGet.Port):
					problem("%s: a probe asks port %s", name, probe.HTTPGet.Port.String())
				case probe.TCPSocket != nil && !hasPort(template, probe.TCPSocket.Port):
					problem("%s: a probe asks port %s", name, probe.TCPSocket.Port.String())
				}
			}
		}
	}
	for name, d := range m.deployments {
		check(name, d.Spec.Selector, d.Spec.Template, nil)
	}
	for name, s := range m.statefulSets {
		check(name, s.Spec.Selector, s.Spec.Template, s.Spec.VolumeClaimTemplates)
		if m.services[s.Spec.ServiceName] == nil {
			problem("%s: no Service %s", name, s.Spec.ServiceName)
		}
	}
	pods := func(labels map[string]string) (found *corev1.PodTemplateSpec) {
		for _, template := range templates {
			if selects(labels, template.Labels) {
				found = &template
			}
		}
		return found
	}
	for name, s := range m.services {
		template := pods(s.Spec.Selector)
		for _, port := range s.Spec.Ports {
			if template == nil || !hasPort(*template, port.TargetPort) {
				problem("Service %s: no pods with port %s", name, port.TargetPort.String())
			}
		}
	}
	for name, b := range m.budgets {
		d := m.deployments[name]
		if pods(b.Spec.Selector.MatchLabels) == nil || d == nil || b.Spec.MinAvailable.IntValue() >= int(*d.Spec.Replicas) {
			problem("PodDisruptionBudget %s selects no pods, or lets none go", name)
		}
	}
	for name, p := range m.policies {
		if pods(p.Spec.PodSelector.MatchLabels) == nil || pods(p.Spec.Ingress[0].From[0].PodSelector.MatchLabels) == nil {
			problem("NetworkPolicy %s selects no pods", name)
		}
	}
	for name, monitor := range m.monitors {
		found := false
		for _, s := range m.services {
			found = found || selects(monitor.Spec.Selector.MatchLabels, s.Labels) &&
				slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == monitor.Spec.Endpoints[0].Port })
		}
		if !found {
			problem("ServiceMonitor %s selects no Service with port %s", name, monitor.Spec.Endpoints[0].Port)
		}
	}
	slices.Sort(all)
	return all
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

func hasPort(template corev1.PodTemplateSpec, port intstr.IntOrString) bool {
	for _, container := range template.Spec.Containers {
		for _, p := range container.Ports {
			if port.Type == intstr.String && p.Name == port.StrVal || port.Type == intstr.Int && p.ContainerPort == port.IntVal {
				return true
			}
		}
	}
	return false
}

func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestKubernetes holds that Kubernetes knows every field of docs/kubernetes.yaml, that its objects fit together, and
// what docs/deploying.md says of them.
func TestKubernetes(t *testing.T) {
	m, err := read(documented(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range m.problems() {
		t.Error(problem)
	}
	if kinds := len(m.secrets) + len(m.configs) + len(m.services) + len(m.deployments) + len(m.statefulSets) + len(m.budgets) +
		len(m.policies) + len(m.monitors); kinds != 11 {
		t.Errorf("there are %d objects, want 11", kinds)
	}
	secret := m.secrets["limits-redis"].StringData
	if !strings.Contains(secret["users.acl"], "user caddy on >"+secret["password"]+" ") || !strings.Contains(secret["users.acl"], "user default off\n") {
		t.Errorf("the password %q is not that of the user caddy, or the user default is not off:\n%s", secret["password"], secret["users.acl"])
	}
	if s := m.services["caddy"].Spec; s.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal || s.Type != corev1.ServiceTypeLoadBalancer {
		t.Errorf("the Service of clients is %s with %s", s.Type, s.ExternalTrafficPolicy)
	}
	caddy := m.deployments["caddy"].Spec.Template.Spec
	if file := m.configs["caddy"].Data["Caddyfile"]; !strings.Contains(file, "\tadmin localhost:2019\n") {
		t.Errorf("the admin endpoint is not on the loopback interface:\n%s", file)
	}
	for _, port := range caddy.Containers[0].Ports {
		if port.ContainerPort == 2019 {
			t.Error("the admin endpoint is a port of the pod")
		}
	}
	if len(caddy.Containers[0].Env) > 0 {
		t.Error("the environment has something; the password is a file")
	}
	for name, template := range map[string]corev1.PodSpec{"caddy": caddy, "redis": m.statefulSets["redis"].Spec.Template.Spec} {
		if c := template.Containers[0].SecurityContext; !*template.SecurityContext.RunAsNonRoot || !*c.ReadOnlyRootFilesystem || *c.AllowPrivilegeEscalation {
			t.Errorf("%s may run as root, write to its image or become root", name)
		}
	}
}

// TestKubernetesMistakes holds that the check sees mistakes: a misspelt field, a value of another type, what is not there.
func TestKubernetesMistakes(t *testing.T) {
	text := documented(t)
	for old, changed := range map[string]string{
		"externalTrafficPolicy":                           "externalTrafficPolice",
		"replicas: 3":                                     "replicas: three",
		"  minAvailable: 2":                               "  minAvailable: 3",
		"path: /healthz\n":                                "paths: /healthz\n",
		"secretName: limits-redis":                        "secretName: limits",
		"mountPath: /data":                                "mountpath: /data",
		"targetPort: http":                                "targetPort: https",
		"interval: 15s":                                   "intervall: 15s",
		"apiVersion: policy/v1":                           "apiVersion: policy/v1beta1",
		"      labels:\n        app: redis":               "      labels:\n        app: valkey",
		"kind: Secret\nmetadata:\n  name: limits-redis\n": "kind: Secret\nmetadata:\n  name: Limits_Redis\n",
	} {
		broken := strings.Replace(text, old, changed, 1)
		if broken == text {
			t.Errorf("there is no %q", old)
			continue
		}
		if m, err := read(broken); err == nil && len(m.problems()) == 0 {
			t.Errorf("%q in place of %q is no problem", changed, old)
		}
	}
}
