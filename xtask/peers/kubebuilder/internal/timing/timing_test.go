// Package timing measures how long environments take to start and to stop.
package timing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const runs = 7

func report(t *testing.T, what string, took []time.Duration) {
	slices.Sort(took)
	t.Logf("%s: median %v of %d runs (%v to %v)", what, took[len(took)/2].Round(100*time.Microsecond),
		len(took), took[0].Round(100*time.Microsecond), took[len(took)-1].Round(100*time.Microsecond))
}

// As suites do it: envtest looks every 100 ms whether a server answers.
func TestEnvironments(t *testing.T) {
	var starts, stops []time.Duration
	for range runs {
		environment := &envtest.Environment{}
		begun := time.Now()
		if _, err := environment.Start(); err != nil {
			t.Fatal(err)
		}
		starts = append(starts, time.Since(begun))
		begun = time.Now()
		if err := environment.Stop(); err != nil {
			t.Fatal(err)
		}
		stops = append(stops, time.Since(begun))
	}
	report(t, "Environment.Start", starts)
	report(t, "Environment.Stop", stops)
}

// Without envtest: from exec to an answer.
func TestFromExecToHealthz(t *testing.T) {
	var etcds, servers []time.Duration
	for range runs {
		etcd, server := once(t)
		etcds, servers = append(etcds, etcd), append(servers, server)
	}
	report(t, "etcd, from exec to /health", etcds)
	report(t, "kube-apiserver, from exec to /healthz", servers)
}

func once(t *testing.T) (time.Duration, time.Duration) {
	folder := t.TempDir()
	etcdURL := fmt.Sprintf("http://127.0.0.1:%d", port(t))
	etcd := start(t, "etcd",
		"--data-dir="+filepath.Join(folder, "data"), "--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls=http://127.0.0.1:0", "--unsafe-no-fsync=true")
	defer stop(t, etcd)
	etcdTook := answers(t, etcdURL+"/health")

	certify(t, folder)
	serverPort := port(t)
	server := start(t, "kube-apiserver",
		"--etcd-servers="+etcdURL, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", serverPort),
		"--cert-dir="+folder, "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
		"--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true",
		fmt.Sprintf("--service-account-issuer=https://127.0.0.1:%d/", serverPort),
		"--service-account-key-file="+filepath.Join(folder, "apiserver.crt"),
		"--service-account-signing-key-file="+filepath.Join(folder, "apiserver.key"))
	defer stop(t, server)
	return etcdTook, answers(t, fmt.Sprintf("https://127.0.0.1:%d/healthz", serverPort))
}

func start(t *testing.T, name string, flags ...string) *exec.Cmd {
	command := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), name), flags...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command
}

func stop(t *testing.T, command *exec.Cmd) {
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = command.Wait()
}

// answers waits for a 200, and says how long that took.
func answers(t *testing.T, url string) time.Duration {
	client := &http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	begun := time.Now()
	for time.Since(begun) < time.Minute {
		if answer, err := client.Get(url); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return time.Since(begun)
			}
		}
		time.Sleep(500 * time.Microsecond)
	}
	t.Fatalf("%s does not answer", url)
	return 0
}

func port(t *testing.T) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// certify writes a serving pair, as envtest does; its key signs tokens, too.
func certify(t *testing.T, folder string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "timing"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "apiserver.crt"), "CERTIFICATE", certificate)
	write(t, filepath.Join(folder, "apiserver.key"), "PRIVATE KEY", private)
}

func write(t *testing.T, path, kind string, bytes []byte) {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
		t.Fatal(err)
	}
}
