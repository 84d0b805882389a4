// A device plugin that offers GPUs which are not there, so that a kubelet accounts for them as for real ones.
//
// It serves one resource with a number of devices, registers itself with the kubelet and answers until it is
// ended. A container is told which devices it was given in NVIDIA_VISIBLE_DEVICES, as with NVIDIA's own plugin.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	socket   = "jobtree-gpu.sock"
	patience = 2 * time.Minute
)

type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	devices []*pluginapi.Device
}

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done() // the devices never change
	return nil
}

func (p *plugin) Allocate(_ context.Context, asked *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		visible := strings.Join(container.DevicesIds, ",")
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": visible},
		})
	}
	return answer, nil
}

func main() {
	resource := flag.String("resource", "nvidia.com/gpu", "the resource to offer")
	count := flag.Int("count", 8, "how many devices")
	flag.Parse()
	p := &plugin{}
	for i := range *count {
		p.devices = append(p.devices, &pluginapi.Device{ID: fmt.Sprint(i), Health: pluginapi.Healthy})
	}
	if err := serve(p, *resource); err != nil {
		log.Fatal(err)
	}
}

func serve(p *plugin, resource string) error {
	if err := awaitKubelet(); err != nil {
		return err
	}
	path := filepath.Join(pluginapi.DevicePluginPath, socket)
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if err := register(resource); err != nil {
		return err
	}
	log.Printf("offering %d of %s", len(p.devices), resource)
	return <-ended
}

// A kubelet that starts removes every socket it finds: ours must not be there before it listens.
func awaitKubelet() error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		connection, err := net.Dial("unix", pluginapi.KubeletSocket)
		if err == nil {
			return connection.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

func register(resource string) error {
	kubelet, err := grpc.NewClient("unix://"+pluginapi.KubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	limited, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(kubelet).Register(limited, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: socket, ResourceName: resource,
	})
	return err
}
