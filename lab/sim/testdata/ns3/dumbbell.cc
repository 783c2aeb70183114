// The peer of BenchmarkDumbbell: the same dumbbell in ns-3 3.37, for its speed.
// C++, because ns-3 has no other language here (Debian packages no bindings).
// It is no part of the program, and only `make bench` builds it.
//
// usage: dumbbell SECONDS  →  one line: packets, down bytes, up bytes
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <iostream>

using namespace ns3;

static uint64_t g_packets; // that left one of the two ends of the bottleneck

static void
Sent(Ptr<const Packet>)
{
    g_packets++;
}

int
main(int argc, char* argv[])
{
    double seconds = argc > 1 ? std::atof(argv[1]) : 10;
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpCubic"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));

    NodeContainer nodes; // home, router, provider, server
    nodes.Create(4);
    InternetStackHelper().Install(nodes);

    PointToPointHelper edge;
    edge.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    edge.SetChannelAttribute("Delay", StringValue("0ms"));
    NetDeviceContainer lan = edge.Install(nodes.Get(0), nodes.Get(1));
    NetDeviceContainer core = edge.Install(nodes.Get(2), nodes.Get(3));
    PointToPointHelper line;
    line.SetChannelAttribute("Delay", StringValue("10ms"));
    line.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p")); // the waiting is fq_codel's
    NetDeviceContainer wan = line.Install(nodes.Get(1), nodes.Get(2));
    wan.Get(0)->SetAttribute("DataRate", StringValue("20Mbps"));
    wan.Get(1)->SetAttribute("DataRate", StringValue("100Mbps"));
    for (uint32_t i = 0; i < 2; i++)
    {
        wan.Get(i)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Sent));
    }

    TrafficControlHelper shaper;
    shaper.SetRootQueueDisc("ns3::FqCoDelQueueDisc", "UseEcn", BooleanValue(false));
    shaper.Install(wan);

    Ipv4AddressHelper address;
    address.SetBase("10.1.0.0", "255.255.255.0");
    Ipv4Address home = address.Assign(lan).GetAddress(0);
    address.SetBase("10.2.0.0", "255.255.255.0");
    address.Assign(wan);
    address.SetBase("10.3.0.0", "255.255.255.0");
    Ipv4Address server = address.Assign(core).GetAddress(1);
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    ApplicationContainer sinks[2]; // of downloads, of uploads
    for (uint16_t i = 0; i < 8; i++)
    {
        bool up = i % 2;
        InetSocketAddress to(up ? server : home, 5000 + i);
        PacketSinkHelper sink("ns3::TcpSocketFactory", to);
        sinks[up].Add(sink.Install(nodes.Get(up ? 3 : 0)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", to);
        bulk.SetAttribute("SendSize", UintegerValue(64 << 10));
        bulk.Install(nodes.Get(up ? 0 : 3));
    }

    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    uint64_t bytes[2] = {0, 0};
    for (int up = 0; up < 2; up++)
    {
        for (uint32_t i = 0; i < sinks[up].GetN(); i++)
        {
            bytes[up] += DynamicCast<PacketSink>(sinks[up].Get(i))->GetTotalRx();
        }
    }
    std::cout << g_packets << " " << bytes[0] << " " << bytes[1] << std::endl;
    Simulator::Destroy();
    return 0;
}
