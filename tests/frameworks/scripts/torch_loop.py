import torch

from carico_agent.progress import report

torch.set_num_threads(1)
x = torch.randn(8192, 256)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=64)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
optimizer = torch.optim.Adam(model.parameters())
epochs, steps = 8, 0
for _ in range(epochs):
    for inputs, wanted in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), wanted).backward()
        optimizer.step()
        steps += 1
        report(steps, epochs * len(loader))
